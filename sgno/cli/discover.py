"""`sgno discover`"""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import answers, console, emit_json, say
from sgno.errors import InputError

# Terms that were left out, the most tempting first, are listed up to this number.
_LISTED = 4


def discover(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Trajectories (samples, time, channels, *space) as .npy, .npz, HDF5 or zarr."
        ),
    ],
    dt: Annotated[
        str, options.data(help="The time between two frames: a number, or the name of an array of the file.")
    ] = "1",
    length: Annotated[
        str, options.data(help="Of the periodic box: a number, or one for each axis, with commas.")
    ] = "1",
    inputs: Annotated[
        str | None,
        options.data(help="Known inputs: names of arrays of the file, with commas.", show_default="none"),
    ] = None,
    holds: Annotated[
        str | None,
        options.data(
            help="The inputs that keep the value of a frame until the next one.",
            show_default="linear in between",
        ),
    ] = None,
    channels: Annotated[
        str | None, options.data(help="Names of the channels, with commas.", show_default="u,v,w")
    ] = None,
    layout: options.Layout = None,
    key: options.Key = None,
    only: Annotated[
        str | None,
        options.model(
            help="The terms, if they are known: 'u_xx, u u_x', or 'u: v u_xx, 1; v: u' for several channels.",
            show_default="all of the library",
        ),
    ] = None,
    latex: Annotated[bool, options.output("--latex", help="Print the equation in LaTeX too.")] = False,
    out: Annotated[
        Path | None,
        options.output(help="Write the equation as a step, for rollout and export.", show_default="none"),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
):
    """Find the PDE behind trajectories, with an interval for each coefficient, in your units.

    A part of the trajectories is held out and decides which terms stay, and whether an equation was found at
    all.
    """
    options.check_writable(out)
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists. Choose another name, or --force to replace it.")
    from sgno.identify.equation import discover as search
    from sgno.identify.equation import parse_terms
    from sgno.identify.equation.terms import channel_names
    from sgno.io.survey import survey
    from sgno.lab.data.own import open_data

    source = open_data(file, key=key, layout=layout).source
    for warning in survey(source).warnings:
        say(f"Warning: {warning}", style="yellow")
    names = tuple(_list(channels)) or channel_names(source.grid.channels)
    known = {name: _array(file, name) for name in _list(inputs)}
    found = search(
        source.read(),
        dt=_number_or_array(file, dt),
        length=_lengths(length),
        inputs=known,
        holds=_list(holds),
        channels=names,
        only=None if only is None else parse_terms(only, names, source.grid.num_spatial_dims, known),
    )
    say(str(found), to=console if json else answers)
    if latex:
        say(found.equation.latex(), to=console if json else answers)
    if tempting := found.rejected[:_LISTED]:
        rows = (f"{found.equation.name_of(term)} ({deviations:.2g})" for term, deviations in tempting)
        say(f"  left out (standard deviations from zero): {', '.join(rows)}", to=console)
    content = found.to_json()
    if out is not None:
        _save(found, source.grid, out)
        content["weights"] = str(out)
        say(f"weights: {out}")
    if json:
        emit_json(content)


def _list(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _array(file: Path, name: str) -> Any:
    import numpy as np

    from sgno.io.source import open_array

    raw, _ = open_array(file, name, ())
    return np.asarray(raw[(slice(None),) * len(raw.shape)])


def _number_or_array(file: Path, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return _array(file, text)


def _lengths(text: str) -> float | tuple[float, ...]:
    try:
        lengths = tuple(map(float, text.split(",")))
    except ValueError as error:
        raise InputError(
            f"--length {text} is no number. Give one, or one for each axis: --length 6.28,1."
        ) from error
    return lengths[0] if len(lengths) == 1 else lengths


def _save(found: Any, grid: Any, out: Path) -> None:
    """The equation as a step with dt of the first frames; another one is a step of `at`."""
    from sgno.weights import save

    if found.equation.inputs:
        raise InputError(
            f"The equation needs {', '.join(found.equation.inputs)}, which a step on its own does not have. "
            "Leave out --out, and use sgno.identify.equation.simulate."
        )
    save(out, found.step(grid))
