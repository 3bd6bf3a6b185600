"""`sgno certify`"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, say, show_table
from sgno.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from sgno.solve.certificates import Evidence

_SHOWN_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def certify(
    weights: Annotated[
        list[str],
        typer.Argument(help="Weights files, run folders or names of `sgno zoo`."),
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
    """What is guaranteed of a trained SGNO, SGNO-X or linear step, for every input.

    With data also how many steps a forecast is good for: measured, and as far as a bound says so. A zoo model
    or a run folder is compared with the test data of its own task.
    """
    options.check_at_least(1, samples=samples, steps=steps)
    options.check_writable(out)
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.zoo import find, load
    from sgno.weights import read_provenance

    cache = cache or default_cache()
    use_compilation_cache(cache)
    results = []
    for name in weights:
        one = _Named(name, load(name), read_provenance(find(name)))
        own_task = not Path(name).is_file()
        reference = _reference(one, data, key, layout, task, own_task, samples, steps, cache)
        results.append(_certify(one, reference, out))
    if json:
        emit_json({"certificates": results})


class _Named(NamedTuple):
    """A step, what the user called it, and where it comes from."""

    name: str
    step: Any
    provenance: dict[str, Any]


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
    job = one.provenance.get("job")
    recorded = job.get("task") if isinstance(job, dict) else None
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


def _certify(one: _Named, reference: "np.ndarray | None", out: Path | None) -> dict[str, Any]:
    from sgno.solve.certificates import certify as certificate_of
    from sgno.solve.certificates import gather_evidence
    from sgno.solve.certificates.words import found, guaranteed

    points = one.step.grid.points if reference is None else reference.shape[3:]
    certificate = certificate_of(one.step, points)
    seen = None if reference is None else gather_evidence(one.step, certificate, reference)
    words = guaranteed(certificate) + (found(certificate, seen) if seen else [])
    say(f"{one.name} ({certificate.kind})", style="bold")
    for line in words:
        say(line)
    content: dict[str, Any] = {"weights": one.name, **certificate.to_json(), "words": words}
    if seen is not None:
        _print_horizon(one.name, seen)
        content["evidence"] = seen.to_json()
        if out is not None:
            content["figures"] = _draw(one.name, content["evidence"], words, out)
    return content


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
    from sgno.lab.report.figures.one_model import certificate_figure
    from sgno.lab.report.figures.style import save, styled

    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name).strip("_")[-80:]
    with styled():
        paths = save(certificate_figure(name, evidence, words), make_folder(out), f"certificate_{safe}")
    for path in paths:
        say(f"Figure: {path}")
    return [str(path) for path in paths]


def _power(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 300 else f"1e{log10:+.0f}"
