"""`sgno certify`"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, say, show_table
from sgno.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from sgno.solve.certificates import Certificate, Evidence

_SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def certify(
    weights: Annotated[
        list[str],
        typer.Argument(help="Weights files, run folders or names of `sgno zoo`; several seeds go together."),
    ],
    data: Annotated[
        Path | None,
        options.data(help="Trajectories to compare with: .npy, .npz, HDF5 or zarr.", show_default="none"),
    ] = None,
    key: options.Key = None,
    layout: options.Layout = None,
    task: Annotated[
        str | None,
        options.data(
            help="Compare with the test data of this task; 'recorded' is the one of the training.",
            show_default="recorded, for a run's folder or a model of the zoo",
        ),
    ] = None,
    samples: Annotated[int, options.data(help="Trajectories to roll out.")] = 10,
    steps: Annotated[int | None, options.data(help="Steps to roll out.", show_default="all")] = None,
    out: Annotated[
        Path | None,
        options.output(help="Folder for the figures, which need data.", show_default="none is drawn"),
    ] = None,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """What is guaranteed of a trained SGNO or SGNO-X: bounds that hold for every input, rounding included.

    With data also the finite-horizon error bound beside the error really measured. A zoo model or a run
    folder is compared with the test data of its own task.
    """
    options.check_at_least(1, samples=samples, steps=steps)
    options.check_writable(out)
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.zoo import find, load
    from sgno.weights import read_provenance

    cache = cache or default_cache()
    use_compilation_cache(cache)
    loaded = [_Named(name, load(name), read_provenance(find(name))) for name in weights]
    results = []
    for group in _groups(loaded):
        own_task = not Path(group[0].name).is_file()
        reference = _reference(group[0], data, key, layout, task, own_task, samples, steps, cache)
        results += _certify_group(group, reference, out)
    if json:
        emit_json({"certificates": results})


class _Named(NamedTuple):
    """A step, what the user called it, and where it comes from."""

    name: str
    step: Any
    provenance: dict[str, Any]


def _groups(loaded: Sequence[_Named]) -> list[list[_Named]]:
    """Steps of one model, grid and task together: their seeds are certified in one batch."""
    groups: dict[Any, list[_Named]] = {}
    for one in loaded:
        task = one.provenance.get("job", {}).get("task", {}).get("name")
        groups.setdefault((str(one.step.config.to_json()), one.step.grid, task), []).append(one)
    return list(groups.values())


def _reference(
    one: _Named, data, key, layout, task, own_task: bool, samples: int, steps: int | None, cache: Path
) -> "np.ndarray | None":
    """`(samples, times, channels, *points)` to compare with, or None."""
    import numpy as np

    grid, last = one.step.grid, None if steps is None else steps + 1
    if data is not None:
        from sgno.io.source import open_source

        source = open_source(data, key=key, layout=layout, prefer=("u", "test", "train"))
        if len(source.shape[3:]) != grid.num_spatial_dims or source.shape[2] != grid.channels:
            raise InputError(
                f"{source.name} has (channels, *points) = {source.shape[2:]}, but the model was trained on "
                f"{grid.shape}. Give data of the same channels and axes, or another --layout."
            )
        if source.shape[1] < 2:
            raise InputError(f"{source.name} has one time only. A step needs two.")
        return source.read(slice(samples), slice(last))
    recorded = one.provenance.get("job", {}).get("task")
    if task is None and not (own_task and recorded):
        return None
    from sgno.lab.data.own import load_data, task_from_json
    from sgno.lab.tasks import get_task

    if task in (None, "recorded"):
        if not recorded:
            raise InputError(
                "The weights do not say what they were trained on. Name a --task, or give --data."
            )
        chosen = task_from_json(recorded)
    else:
        assert task is not None
        chosen = get_task(task)
    try:
        test = load_data(chosen, cache).test
    except InputError as error:
        if task is not None:
            raise
        # A user's files may have moved since; what holds for every input needs none.
        say(f"No data to compare with: {error}")
        return None
    if test.shape[2] != grid.channels or test.ndim - 3 != grid.num_spatial_dims:
        raise InputError(
            f"{chosen.name} has states of shape {test.shape[2:]}, but the model was trained on "
            f"{grid.shape}. Choose a --task of the same channels and axes."
        )
    return np.asarray(test[:samples, :last])


def _certify_group(
    group: list[_Named], reference: "np.ndarray | None", out: Path | None
) -> list[dict[str, Any]]:
    from sgno.solve.certificates import certify as certify_steps
    from sgno.solve.certificates import gather_evidence
    from sgno.solve.certificates.words import found, guaranteed

    points = group[0].step.grid.points if reference is None else reference.shape[3:]
    trained = [one.step for one in group]
    certificates = certify_steps(trained, points)
    evidence = [None] * len(group) if reference is None else gather_evidence(trained, certificates, reference)
    results = []
    for (name, *_), certificate, seen in zip(group, certificates, evidence, strict=True):
        words = guaranteed(certificate) + (found(certificate, seen) if seen else [])
        _print_constants(name, certificate)
        content: dict[str, Any] = {"weights": name, **certificate.to_json(), "words": words}
        if seen is not None:
            _print_horizon(name, seen)
            content["evidence"] = seen.to_json()
            if out is not None:
                content["figures"] = _draw(name, content["evidence"], words, out)
        for line in words:
            say(line)
        results.append(content)
    return results


def _print_constants(name: str, certificate: "Certificate") -> None:
    from sgno.solve.certificates.sgno_x import SGNOXConstants

    constants = certificate.constants
    units = "" if certificate.units is None else ", of the model in units of its own"
    title = f"{name}: certified constants (upper bounds{units})"
    if isinstance(constants, SGNOXConstants):
        row = {
            "carry": constants.carry,
            "with growth": constants.linear,
            "closure": constants.closure,
            "inner step": constants.inner,
            "inner steps": constants.inner_steps,
            "whole step": constants.step,
            "R": constants.ball,
        }
        show_table(console, title, list(row), [[f"{x:.4g}" for x in row.values()]])
        return
    columns = {
        "carry": "carry",
        "phi_1": "phi1",
        "budget": "budget",
        "mixer": "mixer",
        "corr.": "correction",
        "local": "local",
        "q": "paper",
        "sharp q": "sharp",
    }
    rows = [
        (str(i), *(f"{getattr(layer, field):.4g}" for field in columns.values()))
        for i, layer in enumerate(constants.layers)
    ]
    show_table(
        console,
        title,
        ("layer", *columns),
        rows,
        drop=("phi_1", "budget", "mixer"),
        caption=f"lift {constants.lift:.4g}, head {constants.head:.4g}; whole step 1 + head (prod q) lift: "
        f"{constants.paper:.4g} by the paper's q, {constants.sharp:.4g} by the sharper one",
    )


def _print_horizon(name: str, evidence: "Evidence") -> None:
    last = len(evidence.error)
    rows = [
        (
            str(t),
            f"{evidence.error[t - 1]:.4g}",
            *(_power(bound[t - 1]) for bound in (evidence.certified, evidence.indicated)),
        )
        for t in sorted({*(t for t in _SHOWN_STEPS if t < last), last})
    ]
    headings = ("step", "measured e_t", "certified bound", "with the local estimate (indication)")
    show_table(console, f"{name}: error of the rollout and its bounds", headings, rows)


def _draw(name: str, evidence: dict[str, Any], words: list[str], out: Path) -> list[str]:
    from sgno.io.commit import make_folder
    from sgno.lab.report.figures.certificate import certificate_figure
    from sgno.lab.report.figures.style import save, styled

    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name).strip("_")[-80:]
    with styled():
        paths = save(certificate_figure(name, evidence, words), make_folder(out), f"certificate_{safe}")
    for path in paths:
        say(f"Figure: {path}")
    return [str(path) for path in paths]


def _power(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 300 else f"1e{log10:+.0f}"
