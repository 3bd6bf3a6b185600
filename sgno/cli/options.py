"""Options that several commands share, in the groups that their help shows, and checks of them."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sgno.errors import InputError

# Groups of options in a command's help.
model = partial(typer.Option, rich_help_panel="Model")
training = partial(typer.Option, rich_help_panel="Training")
data = partial(typer.Option, rich_help_panel="Data")
running = partial(typer.Option, rich_help_panel="Run")
output = partial(typer.Option, rich_help_panel="Output")

Weights = Annotated[
    str, typer.Argument(metavar="WEIGHTS", help="A weights file, a run's folder, or a name of `sgno zoo`.")
]
Model = Annotated[str, model(help="A model of `sgno models`, or an APEBench network string.")]
Settings = Annotated[list[str] | None, model("--set", help="A setting of the model: --set width=8.")]
Precision = Annotated[str, model(help="float32 or float64.")]

Updates = Annotated[int | None, training(help="Training updates.", show_default="10,000, the paper's")]
Batch = Annotated[int | None, training(help="Batch size.", show_default="20")]
Rate = Annotated[float | None, training(help="Peak learning rate.", show_default="1e-3")]
Warmup = Annotated[int | None, training(help="Warm-up updates.", show_default="2,000 of 10,000")]
Unroll = Annotated[int | None, training(help="Train through this many steps.", show_default="1")]
Pushforward = Annotated[bool, training(help="Cut the gradient between unrolled steps.")]
Noise = Annotated[
    float | None, training(help="Input noise, as a fraction of the data's spread.", show_default="none")
]

Key = Annotated[str | None, data(help="Which array of the file.", show_default="u, or the only one")]
Layout = Annotated[
    str | None,
    data(
        help="The order of the axes, such as 'sample time space channel'; x y z name those of space one by "
        "one, and a channel or sample that is missing is an axis of one.",
        show_default="sample time channel space",
    ),
]
Inputs = Annotated[
    str | None,
    data(
        help="Known inputs: names of arrays beside the trajectories, with commas (nu,f; nu_train and nu_test "
        "where these are apart). Given to the model, never predicted.",
        show_default="none",
    ),
]
Holds = Annotated[
    str | None,
    data(
        help="The inputs that keep their value from one frame to the next.", show_default="linear in between"
    ),
]
History = Annotated[int, data(help="How many frames the model sees.")]
Boundary = Annotated[
    str | None,
    data(
        help="What holds at the walls: dirichlet (given values), neumann (no flux) or periodic, for all, or "
        "by axis and channel: 'x: dirichlet(0, 1), y: periodic', 'u: dirichlet, v: neumann'. Values that "
        "are not given are measured.",
        show_default="periodic",
    ),
]
Nodes = Annotated[
    str | None,
    data(help="Points between walls are on the walls (walls) or not (cells).", show_default="by the data"),
]
TimeStep = Annotated[
    str | None,
    data(
        "--dt",
        help="The time between frames: a number, or an array of the file by sample or by frame.",
        show_default="1",
    ),
]
Length = Annotated[str | None, data(help="Length of the box, or of each side with commas.", show_default="1")]
GivenInputs = Annotated[
    str | None,
    data(
        "--inputs",
        help="Known inputs of the model: a file with their arrays, or values such as nu=0.01,a=2.",
        show_default="from the file of the trajectories",
    ),
]
Samples = Annotated[int | None, data(help="Use this many samples, from the first on.", show_default="all")]
Points = Annotated[int | None, data(help="Grid points per axis.", show_default="the task's")]

Level = Annotated[float, running(help="The error (nRMSE) that the horizon of a forecast tolerates.")]
Probability = Annotated[float, running(help="With which a forecast stays below it for that long.")]
Seeds = Annotated[int, running(help="Number of network seeds, starting from --first-seed.")]
FirstSeed = Annotated[int, running(help="The first network seed.")]
CheckpointSeconds = Annotated[float, running(help="Seconds between a run's checkpoints.")]

Cache = Annotated[
    Path | None,
    output(
        help="Folder of generated data and compiled programs.", show_default="$SGNO_CACHE or the user's cache"
    ),
]
Out = Annotated[Path, output(help="Folder of finished runs; a finished run answers from it.")]
Force = Annotated[bool, output("--force", help="Replace what is there.")]
Track = Annotated[
    str | None,
    output(help="Also track with tensorboard, wandb (offline), or both by a comma.", show_default="neither"),
]
Json = Annotated[bool, output("--json", help="One JSON object as the last line of standard output.")]


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    """`["width=8", ...]` as a dictionary."""
    settings = {}
    for pair in pairs or []:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise InputError(f"'{pair}' is not NAME=VALUE, for example --set width=8.")
        settings[name.strip()] = text.strip()
    return settings


def parse_names(text: str | None) -> list[str]:
    """`"nu, a"` as a list."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"'{repeated}' is named twice in '{text}'. Name it once.")
    return names


def parse_numbers(name: str, text: str | None) -> list[float] | None:
    """`"1, 2"` as numbers."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--{name} {text} is not a number, nor several with commas.") from None


def number_or_name(text: str | None) -> float | str | None:
    """A number as such, any other text as it is."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def check_at_least(least: int, **values: int | float | None) -> None:
    """**Raises:** `InputError` naming the first option that was given and lies below `least`."""
    for name, value in values.items():
        if value is not None and not value >= least:
            raise InputError(f"--{name.replace('_', '-')} {value} must be at least {least}.")


def check_writable(path: Path | None) -> None:
    """Refuse an output that cannot be written before any work is done.

    **Raises:** `InputError` if something on the way to it is not a folder, or may not be written to.
    """
    if path is None:
        return
    place = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if place != path.absolute() and not place.is_dir():
        raise InputError(f"Cannot create {path}: {place} is not a folder. Choose another place.")
    if not os.access(place, os.W_OK):
        raise InputError(f"Cannot write {path}: {place} is read-only for you. Choose another place.")
