"""`sgno rollout`"""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json
from sgno.errors import InputError


def rollout(
    weights: Annotated[
        str,
        typer.Argument(metavar="WEIGHTS", help="A weights file, a run's folder, or a name of `sgno zoo`."),
    ],
    initial: Annotated[
        Path,
        typer.Option(
            help="Initial states: (channels, *points), (samples, channels, *points), or trajectories, "
            "of which the first frame is taken. npy, npz, HDF5 or zarr."
        ),
    ],
    steps: Annotated[int, typer.Option(help="How many steps to go.")],
    out: Annotated[Path, typer.Option(help="File to write: .npz, .npy, .h5, .hdf5 or .zarr.")],
    every: Annotated[int, typer.Option(help="Keep one state in so many.")] = 1,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Keep energy, max and finite of each kept step, no states.")
    ] = False,
    samples: Annotated[int | None, typer.Option(help="Only the first so many initial states.")] = None,
    key: Annotated[str | None, typer.Option(help="Which array of the initial file.")] = None,
    layout: Annotated[
        str | None, typer.Option(help='Axes of a trajectory file, such as "sample time space channel".')
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: options.Json = False,
):
    """Roll a trained model out, however far, and write the states as they come.

    The file holds u of shape (samples, 1 + steps // every, channels, *points), its first frame the initial
    state, and step, the number of each frame's step. With --statistics it holds energy, max and finite of
    shape (samples, 1 + steps // every) instead. States that are not finite are written like others, and the
    first such step is reported. The file appears when it is complete.
    """
    if steps < 1 or not 1 <= every <= steps:
        raise InputError(
            f"--steps {steps} --every {every}: use at least one step, and keep one state in "
            f"1 to {max(steps, 1)}."
        )
    if samples is not None and samples < 1:
        raise InputError(f"--samples {samples} must be at least 1.")
    from sgno.data.initial import initial_states
    from sgno.evaluation.writer import writer
    from sgno.models.weights import load_weights
    from sgno.zoo import find

    loaded = load_weights(find(weights))
    u0 = initial_states(initial, loaded.grid, key=key, layout=layout, samples=samples)
    if u0.shape[2:] != loaded.grid.points:
        console.print(
            f"Note: the states have {_sizes(u0.shape[2:])} points, the model was trained on "
            f"{_sizes(loaded.grid.points)}.",
            markup=False,
        )
    began = time.perf_counter()
    progress = {"step": 0}
    try:
        with writer(out, _specs(u0, steps, every, statistics, out), replace=force) as sink:
            nonfinite_at, last = _march(loaded.step, u0, steps, every, statistics, out, sink, progress)
    except KeyboardInterrupt:
        text = f"Interrupted after step {progress['step']:,}; {out} was not written."
        console.print(text, markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - began
    summary = {
        "weights": weights,
        "out": str(out),
        "steps": steps,
        "every": every,
        "samples": len(u0),
        "grid": list(u0.shape[1:]),
        "frames": 1 + steps // every,
        "nonfinite_samples": int((nonfinite_at > 0).sum()),
        "first_nonfinite_step": [int(t) or None for t in nonfinite_at],
        "last": last,
        "seconds": seconds,
        "steps_per_second": steps / seconds,
    }
    _say(summary)
    if json:
        emit_json(summary)


def _specs(u0, steps: int, every: int, statistics: bool, out: Path) -> dict[str, Any]:
    from sgno.evaluation.writer import Spec

    frames, count = 1 + steps // every, len(u0)
    if statistics:
        arrays = {
            "energy": Spec((count, frames)),
            "max": Spec((count, frames)),
            "finite": Spec((count, frames), "bool"),
        }
    else:
        arrays = {"u": Spec((count, frames, *u0.shape[1:]))}
    # An .npy file holds one array; which step a frame is follows from --every.
    return arrays if out.suffix == ".npy" else {**arrays, "step": Spec((frames,), "int64")}


def _march(step, u0, steps: int, every: int, statistics: bool, out: Path, sink, progress: dict[str, int]):
    """Roll out into the sink; gives the first non-finite steps and what the last frame was like."""
    import jax.numpy as jnp
    import numpy as np

    from sgno.cli.progress import bar
    from sgno.evaluation.march import march
    from sgno.evaluation.march import statistics as measured

    def put(start: int, states, numbers) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            if statistics:
                for name, values in numbers._asdict().items():
                    sink.put(name, start, np.asarray(values).T)
            else:
                sink.put("u", start, np.moveaxis(states, 0, 1))
        if out.suffix != ".npy":
            sink.put("step", start, every * np.arange(start, start + len(numbers.energy)))

    first = measured(jnp.asarray(u0))
    numbers = type(first)(*(np.asarray(x)[None] for x in first))
    put(0, u0[None], numbers)
    nonfinite_at = np.zeros(len(u0), int)
    last = None
    with bar("rollout", steps) as advance:
        for piece in march(step, u0, steps, every=every, states=not statistics):
            nonfinite_at = piece.nonfinite_at
            if len(piece.statistics.energy):
                put(1 + piece.start, piece.states, piece.statistics)
                numbers = piece.statistics
            progress["step"] = piece.step
            advance(piece.step)
    finite = numbers.finite[-1]
    if finite.any():
        last = {
            "energy": float(numbers.energy[-1][finite].mean()),
            "max": float(numbers.max[-1][finite].max()),
        }
    return nonfinite_at, last


def _say(summary: dict[str, Any]) -> None:
    speed = f"{summary['steps_per_second']:,.0f} steps a second"
    console.print(
        f"Wrote {summary['out']}: {summary['samples']} sample(s), {summary['frames']:,} frames, {speed}.",
        markup=False,
        soft_wrap=True,
    )
    if summary["nonfinite_samples"]:
        firsts = [t for t in summary["first_nonfinite_step"] if t is not None]
        console.print(
            f"[yellow]{summary['nonfinite_samples']} of {summary['samples']} sample(s) became non-finite, "
            f"the first at step {min(firsts):,}.[/yellow]"
        )
    else:
        console.print(f"Every state was finite up to step {summary['steps']:,}.")


def _sizes(points: tuple[int, ...]) -> str:
    return "x".join(map(str, points))
