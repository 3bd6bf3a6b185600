"""SGNO-X against the solver, as `sgno frontier` measured it. The file is a stranger's until it is checked."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sgno.errors import InputError
from sgno.io.files import read_json
from sgno.lab.store import Store

_NAMES = ("exponax", "sgno-x")


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


def read_frontier(root: Path) -> Frontier | None:
    """The measurement in a store, or None if there is none.

    **Raises:** `InputError` if the file is not one of ours.
    """
    path = Store(root).frontier
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        task = content["task"]
        dims = int(task["num_spatial_dims"])
        machine, versions = content["machine"], content["versions"]
        return Frontier(
            str(task["name"])[:100],
            int(content["states"]),
            tuple(_point(point) for point in content["points"][:100]),
            f"{task['name']}, {int(task['num_points'])} points along each of {dims} axes, "
            f"{int(content['states'])} states, {int(content['steps'])} steps timed {int(content['repeats'])} "
            f"times in turn on {str(machine['processor'])[:80]} ({int(machine['cores'])} cores), "
            f"jax {str(versions['jax'])[:20]}, exponax {str(versions['exponax'])[:20]}, "
            f"{str(content['finished'])[:10]}"[:400],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path} is not a file of `sgno frontier` ({error}). Run the command again."
        ) from error


def _point(point: Mapping[str, Any]) -> Point:
    name, score = point["name"], point["gmean100"]
    if name not in _NAMES:
        raise ValueError(f"unknown step {str(name)[:40]!r}")
    times = [float(point[key]) for key in ("seconds_per_step", "seconds_low", "seconds_high")]
    if not all(0 < t < math.inf for t in times):
        raise ValueError("a time is not a positive number")
    error = math.inf if score is None else float(score)
    if not error >= 0:
        raise ValueError("gmean100 is not a number from zero on")
    return Point(name, int(point["divisions"]), error, int(point["stable_step"]), *times)
