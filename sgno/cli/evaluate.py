"""`sgno evaluate`"""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, progress_bar, say, show_table, shown
from sgno.cli.known import known_inputs
from sgno.errors import InputError


def evaluate(
    weights: options.Weights,
    data: Annotated[
        Path,
        typer.Option(
            help="Reference trajectories (samples, times, channels, *points): npy, npz, HDF5 or zarr."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for evaluation.json, curves.npz and the figure.")] = Path(
        "evaluation"
    ),
    samples: options.Samples = None,
    steps: Annotated[int | None, options.data(help="At most this many steps.", show_default="all")] = None,
    tau: Annotated[float, typer.Option(help="The nRMSE up to which a rollout counts as stable.")] = 0.2,
    probability: options.Probability = 0.9,
    key: Annotated[
        str | None, options.data(help="Which array of the file.", show_default="test or u")
    ] = None,
    layout: options.Layout = None,
    inputs: options.GivenInputs = None,
    force: options.Force = False,
    json: options.Json = False,
):
    """Score a trained model on trajectories: roll out from each first state, compare at every step.

    Writes nRMSE, correlation and spectral errors per step and trajectory, GMean100, the stable step, the
    horizon (for how many steps an unseen trajectory stays below --tau), energy spectra, and a figure of them.
    """
    options.check_at_least(1, samples=samples, steps=steps)
    if not 0 < tau < float("inf"):
        raise InputError(f"--tau {tau} must be positive.")
    _check_out(out, force)
    from sgno.devices import use_every_core
    from sgno.io.source import open_source
    from sgno.lab.zoo import load
    from sgno.solve import calibrate
    from sgno.solve import evaluate as score
    from sgno.solve.forecast_horizon import check_claim

    check_claim(tau, probability)
    use_every_core(samples)
    step = load(weights)
    source = open_source(data, key=key, layout=layout, prefer=("test", "u"))
    given = known_inputs(step, inputs, data, "test" if key is None else key)
    shape = _chosen_shape(source, step.grid, samples, steps)
    with progress_bar("evaluate", shape[0]) as advance:
        scored = score(step, source, samples=samples, steps=steps, inputs=given or None, on_progress=advance)
    horizon = calibrate([scored.nrmse], level=tau, probability=probability)
    summary = {"weights": weights, "data": str(data), "shape": list(shape), **_summary(scored, tau)}
    summary["horizon"] = horizon.to_json()
    _write(out, summary, scored, tau, force)
    _say(summary, out)
    say(str(horizon))
    if json:
        emit_json({**summary, "out": str(out)})


def _check_out(out: Path, force: bool) -> None:
    options.check_writable(out)
    if not out.exists():
        return
    if not force:
        raise InputError(f"{out} exists already. Choose another --out, or add --force to replace it.")
    if not (out / "evaluation.json").is_file():
        raise InputError(f"{out} is not an earlier evaluation, so it is not replaced. Choose another --out.")


def _chosen_shape(source, grid, samples: int | None, steps: int | None) -> tuple[int, ...]:
    if source.grid.channels != grid.channels or source.grid.num_spatial_dims != grid.num_spatial_dims:
        raise InputError(
            f"{source.name} has states of shape {source.grid.shape}, the model was made for {grid.shape}. "
            "The points per axis may differ, the channels and the number of axes may not."
        )
    if source.shape[1] < 2:
        raise InputError(
            f"{source.name} has one time only, so there is no step to compare. Give two or more."
        )
    count = source.shape[0] if samples is None else min(samples, source.shape[0])
    times = source.shape[1] if steps is None else min(steps + 1, source.shape[1])
    return (count, times, *source.shape[2:])


def _summary(scored, tau: float) -> dict[str, Any]:
    from sgno.io.files import finite
    from sgno.solve.metrics import mean_over_trajectories, spectral_averages

    return {
        "gmean100": finite(scored.gmean100),
        "tau": tau,
        "stable_step": scored.stable_step(tau),
        "nonfinite_steps": scored.nonfinite_steps,
        "spectral": finite(spectral_averages(scored.spectral)),
        "mean_nrmse": finite(scored.mean_nrmse),
        "mean_correlation": finite(mean_over_trajectories(scored.correlation)),
    }


def _write(out: Path, summary: dict[str, Any], scored, tau: float, force: bool) -> None:
    import numpy as np

    from sgno.io.commit import new_folder
    from sgno.io.files import write_json
    from sgno.lab.report.figures.one_model import evaluation_figure
    from sgno.lab.report.figures.style import save, styled

    last = len(scored.nrmse)
    shown = sorted({min(10, last), last})
    with styled():
        figure = evaluation_figure(
            scored.nrmse,
            scored.correlation,
            [(t, scored.spectrum[t - 1], scored.reference_spectrum[t - 1]) for t in shown],
            title=f"{summary['weights']} on {summary['data']}, {summary['shape'][0]} trajectories",
            tau=tau,
            stable_step=summary["stable_step"],
        )
        with new_folder(out, replace=force) as folder:
            save(figure, folder, "evaluation")
            np.savez(
                folder / "curves.npz",
                allow_pickle=False,
                nrmse=scored.nrmse,
                correlation=scored.correlation,
                **{f"spectral_{name}": np.asarray(e) for name, e in scored.spectral._asdict().items()},
                spectrum=scored.spectrum,
                reference_spectrum=scored.reference_spectrum,
            )
            write_json(folder / "evaluation.json", summary)


def _say(summary: dict[str, Any], out: Path) -> None:
    errors, correlations = summary["mean_nrmse"], summary["mean_correlation"]
    last = len(errors)
    times = sorted({t for t in (1, 10, 100, 200, last) if t <= last})
    rows = [(str(t), shown(errors[t - 1]), shown(correlations[t - 1])) for t in times]
    show_table(console, f"{summary['weights']} on {summary['data']}", ("step", "nRMSE", "correlation"), rows)
    say(
        f"GMean100 {shown(summary['gmean100'])}, stable for {summary['stable_step']} of {last} steps "
        f"(nRMSE up to {summary['tau']:g}), {summary['nonfinite_steps']} non-finite. Wrote {out}."
    )
