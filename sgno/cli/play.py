"""`sgno play`"""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import emit_json, say
from sgno.errors import InputError, require

if TYPE_CHECKING:
    import numpy as np

# States to start from that a page offers of one task.
_STARTS = 4


def play(
    weights: Annotated[
        list[str],
        typer.Argument(
            metavar="WEIGHTS...",
            help="Weights files, folders of runs, or names of `sgno zoo`; those on one grid can be compared.",
        ),
    ],
    out: Annotated[Path, options.output(help="The page to write.")] = Path("playground.html"),
    initial: Annotated[
        Path | None,
        options.data(
            help="States to start from: (channels, *points), (samples, channels, *points), or trajectories.",
            show_default="test states of the data that the models were trained on",
        ),
    ] = None,
    key: options.Key = None,
    layout: options.Layout = None,
    show: Annotated[bool, options.output("--open", help="Open the page in a browser.")] = False,
    force: options.Force = False,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Write one page in which trained models run live: draw on the state, pause, scrub, compare.

    The weights are inside the page and run there, from the same ONNX export as `sgno export --to onnx`: it
    needs no server and no network, and can be sent to somebody as it is.
    """
    options.check_writable(out)
    if out.exists() and not force:
        raise InputError(f"{out} exists already. Choose another name with --out, or add --force.")
    require("onnx", "onnx", "The playground")
    import sgno
    from sgno.export.web import write_playground
    from sgno.lab.zoo import load

    steps = {name: load(name) for name in dict.fromkeys(weights)}
    starts: list[tuple[str, Any]] = []
    for name, step in steps.items():
        if any(u.shape == step.grid.shape for _, u in starts):
            continue
        known = _from_file(initial, step, key, layout) if initial is not None else _from_task(name, cache)
        if not known:
            say(
                f"{name} does not say what it was trained on, so it starts from waves. Give states: --initial"
            )
        starts += [*known, ("waves", _waves(step))]
    write_playground(
        out,
        steps,
        starts,
        title=" and ".join(steps) if len(steps) < 3 else "Models of time-dependent PDEs, live",
        about=f"Made by sgno {sgno.__version__}, `sgno play`: ONNX exports, run by plain JavaScript.",
        version=sgno.__version__,
    )
    say(f"Wrote {out} ({out.stat().st_size / 1000:,.0f} kB). Open it in any browser; it needs no network.")
    if show:
        webbrowser.open(out.absolute().as_uri())
    if json:
        emit_json(
            {"out": str(out), "bytes": out.stat().st_size, "models": list(steps), "starts": len(starts)}
        )


def _from_file(path: Path, step: Any, key: str | None, layout: str | None) -> list[tuple[str, "np.ndarray"]]:
    from sgno.io.initial import initial_states

    states = initial_states(path, step.grid, key=key, layout=layout, samples=_STARTS).frames[:, 0]
    if states.shape[1:] != step.grid.shape:
        raise InputError(
            f"{path} has states of shape {states.shape[1:]}, but a page runs a model on the grid of its "
            f"export, {step.grid.shape}. Give states of that shape."
        )
    return [(f"{path.name}, {i}", u) for i, u in enumerate(states)]


def _from_task(name: str, cache: Path | None) -> list[tuple[str, "np.ndarray"]]:
    """First frames of the test trajectories of the task that the weights were trained on."""
    from sgno.lab.data.own import load_data, task_from_json
    from sgno.lab.tasks import Task
    from sgno.lab.zoo import find
    from sgno.weights import read_provenance

    try:
        task = task_from_json(read_provenance(find(name))["job"]["task"])
    except (KeyError, TypeError, ValueError):
        return []
    if isinstance(task, Task):
        # A few states are all that is wanted, and quickly made.
        few = {"num_train_samples": 1, "train_steps": 1, "num_test_samples": _STARTS, "test_steps": 1}
        task = task.with_options(**few)
    states = load_data(task, cache).test[:_STARTS, 0]
    return [(f"{task.name}, test {i}", u) for i, u in enumerate(states)]


def _waves(step: Any) -> "np.ndarray":
    """A few long waves in every channel, as large as the states that the step was scaled to."""
    import numpy as np

    rng = np.random.default_rng(0)
    axes = np.meshgrid(*(np.arange(n) / n for n in step.grid.points), indexing="ij")
    waves = []
    for _ in range(step.grid.channels):
        terms = [
            rng.normal() * np.cos(2 * np.pi * (sum(rng.integers(-3, 4) * x for x in axes) + rng.uniform()))
            for _ in range(6)
        ]
        waves.append(sum(terms) / np.sqrt(3))
    # Models of data in other units say which.
    config = step.config.to_json()
    scale, mean = (
        np.reshape(config.get(k, d), (-1, *(1,) * len(axes))) for k, d in (("scale", 1), ("mean", 0))
    )
    return np.asarray(np.stack(waves) * scale + mean, np.float32)
