"""SGNO-X against the solver, as `sgno frontier` measured it. The file may come from anyone: it is checked."""

import math
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from sgno.errors import InputError
from sgno.io.files import read_json
from sgno.lab.store import Store

# A year for a step is no measurement.
Seconds = Annotated[float, msgspec.Meta(gt=0, lt=3e7)]
Name = Annotated[str, msgspec.Meta(max_length=200)]


class Point(NamedTuple):
    """One way to advance the states: who, in how many parts, how well, and in how many seconds a step."""

    name: str
    divisions: int
    gmean100: float
    stable_step: int
    seconds: float
    low: float
    high: float


class Frontier(NamedTuple):
    """All points, and the words that say where they come from."""

    task: str
    states: int
    points: tuple[Point, ...]
    origin: str


class _Point(msgspec.Struct):
    name: Literal["exponax", "sgno-x"]
    divisions: int
    gmean100: Annotated[float, msgspec.Meta(ge=0)] | None
    stable_step: int
    seconds_per_step: Seconds
    seconds_low: Seconds
    seconds_high: Seconds


class _Task(msgspec.Struct):
    name: Name
    num_points: int
    num_spatial_dims: int


class _Machine(msgspec.Struct):
    processor: Name
    cores: int


class _Versions(msgspec.Struct):
    jax: Name
    exponax: Name


class _Content(msgspec.Struct):
    task: _Task
    states: int
    steps: int
    repeats: int
    points: Annotated[list[_Point], msgspec.Meta(max_length=100)]
    machine: _Machine
    versions: _Versions
    finished: Name


def read_frontier(root: Path) -> Frontier | None:
    """The measurement in a store, or None if there is none.

    **Raises:** `InputError` if the file is not one of ours.
    """
    path = Store(root).frontier
    if not path.is_file():
        return None
    try:
        content = msgspec.convert(read_json(path), _Content)
    except ValueError as error:
        raise InputError(
            f"{path} is not a file of `sgno frontier` ({error}). Run the command again."
        ) from error
    task, machine, versions = content.task, content.machine, content.versions
    points = tuple(
        Point(
            p.name,
            p.divisions,
            math.inf if p.gmean100 is None else p.gmean100,
            p.stable_step,
            p.seconds_per_step,
            p.seconds_low,
            p.seconds_high,
        )
        for p in content.points
    )
    origin = (
        f"{task.name}, {task.num_points} points along each of {task.num_spatial_dims} axes, "
        f"{content.states} states, {content.steps} steps timed {content.repeats} times in turn on "
        f"{machine.processor} ({machine.cores} cores), jax {versions.jax}, exponax {versions.exponax}, "
        f"{content.finished[:10]}"
    )
    return Frontier(task.name, content.states, points, origin)
