"""`sgno explain`"""

from pathlib import Path
from typing import Annotated, Any

from sgno.cli import options
from sgno.cli.console import answers, console, emit_json, say
from sgno.errors import InputError

# States that terms are weighed by.
_STATES = 64


def explain(
    weights: options.Weights,
    data: Annotated[
        Path | None,
        options.data(help="Trajectories to weigh the terms by.", show_default="the task it was trained on"),
    ] = None,
    layout: options.Layout = None,
    out: Annotated[
        Path | None, options.output(help="Folder for explain.png, .svg and .json.", show_default="none")
    ] = None,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Say what a trained SGNO-X learned: its rates, its strongest terms, its forcing; or the equation found.

    Damping and dispersion are drawn against the wavenumber, beside the equation's own linear part where
    the task has one.
    """
    options.check_writable(out)
    import numpy as np

    from sgno.identify.equation import EquationStep
    from sgno.lab.zoo import find, load
    from sgno.nn.normalised import Normalised
    from sgno.sgno_x import SGNOX
    from sgno.solve.explain import explain as read
    from sgno.weights import read_provenance

    step = load(weights)
    scale = 1.0
    if isinstance(step, Normalised):
        # The terms are those of states in units of the scale; SGNO-X is fitted without a shift.
        step, scale = (
            step.step,
            np.asarray(step.scale, np.float32).reshape(-1, *(1,) * len(step.grid.points)),
        )
    if isinstance(step, EquationStep):
        _tell(step, out, json)
        return
    if not isinstance(step, SGNOX):
        raise InputError(
            f"{weights} is a {step.config.kind} model, and only SGNO-X and equations are made of terms "
            "that can be read. Give the weights of one, for example ks1d/sgno-x."
        )
    task = _task(read_provenance(find(weights)))
    found = read(step, _states(task, data, layout, cache, step.grid, weights) / scale)
    content = found.to_json()
    if task is not None and data is None:
        _add_truth(content["curves"], task, step.grid)
    say(found.text, to=console if json else answers)
    if out is not None:
        content["files"] = _write(content, out, f"What {weights} learned")
        say(f"Figure: {content['files'][0]}")
    if json:
        emit_json(content)


def _tell(step, out: Path | None, json: bool) -> None:
    """An equation is its own explanation."""
    if out is not None:
        raise InputError("An equation has no figure. Leave out --out.")
    found, notes = step.config.found, step.config.notes
    lines = [*([] if found else ["No equation was found. The step is that of:"]), str(step.equation)]
    lines += [*(f"  {line}" for line in step.equation.details()), *(f"  {note}" for note in notes)]
    say("\n".join(lines), to=console if json else answers)
    if json:
        emit_json({"equation": str(step.equation).splitlines(), "found": found, "notes": list(notes)})


def _task(provenance: dict[str, Any]):
    """The task that the weights say they were trained on, or None."""
    from sgno.lab.tasks import Task

    try:
        return Task.from_json(provenance["job"]["task"])
    except (KeyError, TypeError, ValueError):
        return None


def _states(task, data: Path | None, layout: str | None, cache: Path | None, grid, weights: str):
    import numpy as np

    if data is not None:
        from sgno.io.source import open_source

        source = open_source(data, layout=layout)
        if source.grid != grid:
            raise InputError(
                f"{data} holds states of shape {source.grid.shape}, but {weights} takes {grid.shape}."
            )
        per_sample = -(-_STATES // source.shape[0])
        times = np.unique(np.linspace(0, source.shape[1] - 1, per_sample).astype(int))
        states = source.read(slice(0, min(_STATES, source.shape[0])), times)
    elif task is not None:
        from sgno.lab.data.trajectories import load_trajectories

        states = load_trajectories(task, cache).train[:, ::10]
    else:
        raise InputError(
            f"{weights} does not say what it was trained on. Give some trajectories with --data."
        )
    states = np.asarray(states).reshape(-1, *grid.shape)
    return states[:: max(1, len(states) // _STATES)][:_STATES]


def _add_truth(curves: list[dict[str, Any]], task, grid) -> None:
    """The equation's linear part along the same axis, beside each curve."""
    import numpy as np

    from sgno.lab.data.scenario import true_symbol

    symbol = true_symbol(task)
    for curve in curves:
        index: list[Any] = [0] * grid.num_spatial_dims
        index[curve["axis"]] = slice(0, len(curve["wavenumber"]))
        rates = symbol[(min(curve["channel"], len(symbol) - 1), *index)]
        curve["true_damping"], curve["true_dispersion"] = (-np.real(rates)).tolist(), np.imag(rates).tolist()


def _write(content: dict[str, Any], out: Path, title: str) -> list[str]:
    from sgno.io.files import write_json
    from sgno.lab.report.figures.one_model import explain_figure
    from sgno.lab.report.figures.style import save, styled

    out.mkdir(parents=True, exist_ok=True)
    with styled():
        files = save(explain_figure(content, title), out, "explain")
    write_json(out / "explain.json", content)
    return [str(path) for path in [*files, out / "explain.json"]]
