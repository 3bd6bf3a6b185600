"""Walls: states between walls as periodic ones on a doubled grid, without the values that the walls hold.

At a wall with a given value (dirichlet) a state is continued oddly, at one without flux (neumann) evenly. A
value other than zero is taken off first, by a straight line between both walls (the lift), so that an odd
continuation has no jump.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from sgno.errors import InputError, unknown_name
from sgno.grid import Grid
from sgno.io.source import Selection, Source

Condition = Literal["periodic", "dirichlet", "neumann"]
Nodes = Literal["walls", "cells"]
_AXES = "xyz"
_ENTRY = re.compile(r"\s*(?:([^:(),;]+):)?\s*([a-zA-Z]+)\s*(?:\(([^)]*)\))?\s*(?:[,;]|$)")
# Values at a wall that vary by more than this part of a channel's spread are no constants.
_VARIES = 0.2
# Smaller values at the walls, by a channel's size, are zero: the rounding of float32 data, and the error of a
# value that is extrapolated from cell centres to the wall.
_ZERO = {"walls": 1e-5, "cells": 1e-2}
# What the survey calls walls, chosen on the wild suite: values at the wall that vary less than this part of
# those two points inside; slopes there below this part of the usual one; the difference from a mirror image.
_HELD, _NO_FLUX, _MIRRORED = 0.1, 0.15, 1e-3
# As many states tell what the ends are like.
_STATES = 200
# From cell centres to the wall half a cell away, exact for quadratic states.
_TO_WALL = np.array([15, -10, 3]) / 8


@dataclass(frozen=True)
class Wall:
    """The condition of one channel along one axis, and the values at its lower and upper end."""

    condition: Condition = "periodic"
    values: tuple[float, float] | None = None

    @property
    def parity(self) -> int:
        return {"periodic": 0, "dirichlet": -1, "neumann": 1}[self.condition]


@dataclass(frozen=True)
class Walls:
    """For each channel of a state, the wall along each axis; and whether the outermost points lie on the
    walls or are the centres of cells beside them.

    `enter` takes states between walls to periodic ones, `leave` back. Behind the channels of a state there
    may be earlier frames, which have the same walls, and known inputs, which are continued evenly. For each
    channel with a lift `enter` adds the lift, oddly continued, as one more known input.
    """

    channels: tuple[tuple[Wall, ...], ...]
    nodes: Nodes

    def __post_init__(self):
        if self.nodes not in get_args(Nodes):
            raise unknown_name("place of the points", str(self.nodes), get_args(Nodes))
        for axis, column in zip(_AXES, zip(*self.channels, strict=True), strict=False):
            if len({wall.condition == "periodic" for wall in column}) > 1:
                raise InputError(
                    f"Axis {axis} is periodic for one channel and has walls for another. Give every channel "
                    "walls there, or none."
                )
        for c, walls in enumerate(self.channels):
            lifted = [a for a, w in zip(_AXES, walls, strict=False) if w.values and any(w.values)]
            held = [a for a, w in zip(_AXES, walls, strict=False) if w.condition == "dirichlet"]
            if lifted and len(held) > 1:
                raise InputError(
                    f"Channel {c} has walls with values along {' and '.join(held)}, not all zero: they "
                    "contradict each other at the corners. Only one axis can hold values other than zero."
                )

    def __str__(self) -> str:
        """What holds where, for a user."""
        found = []
        for c, walls in enumerate(self.channels):
            for axis, wall in zip(_AXES, walls, strict=False):
                if wall.condition != "periodic":
                    values = wall.values and f"({wall.values[0]:.6g}, {wall.values[1]:.6g})"
                    found.append(f"channel {c} along {axis} {wall.condition}{values or ''}")
        place = "on the walls" if self.nodes == "walls" else "in the centres of cells"
        return f"Walls: {', '.join(found)}; the points are {place}."

    @property
    def dims(self) -> int:
        return len(self.channels[0])

    @property
    def lifted(self) -> tuple[int, ...]:
        """The channels with a value other than zero at a wall."""
        return tuple(
            c for c, walls in enumerate(self.channels) if any(w.values and any(w.values) for w in walls)
        )

    def points(self, points: tuple[int, ...]) -> tuple[int, ...]:
        """The points of the doubled grid."""
        twice = (2 * n if self.nodes == "cells" else 2 * n - 2 for n in points)
        return tuple(
            m if wall.parity else n for m, n, wall in zip(twice, points, self.channels[0], strict=True)
        )

    def width(self, channels: int) -> int:
        """How many channels `enter` makes of this many."""
        return channels + len(self.lifted)

    def enter(self, u: Any, frames: int) -> Any:
        """States `(..., channels, *points)` as periodic ones on the doubled grid. The first `frames` channels
        are those of the state and its earlier frames."""
        xp, d = u.__array_namespace__(), self.dims
        own, given = self._split(u, frames)
        points = u.shape[u.ndim - d :]
        lift = xp.asarray(self._lift(points, frames), dtype=u.dtype)
        parts = [self._continue(own - lift, range(frames)), self._continue(given, None)]
        if self.lifted:
            lifts = self._continue(lift[np.asarray(self.lifted)], self.lifted, pinned=False)
            parts.append(xp.broadcast_to(lifts, (*u.shape[: u.ndim - d - 1], *lifts.shape)))
        return xp.concatenate(parts, axis=-1 - d)

    def leave(self, v: Any, frames: int, channels: int) -> Any:
        """Periodic states on the doubled grid as states of `channels` channels between the walls again."""
        xp, d = v.__array_namespace__(), self.dims
        half = []
        for n, wall in zip(v.shape[v.ndim - d :], self.channels[0], strict=True):
            half.append(slice(n if not wall.parity else n // 2 + (self.nodes == "walls")))
        own, given = self._split(v[(..., slice(channels), *half)], frames)
        points = own.shape[own.ndim - d :]
        lift = xp.asarray(self._lift(points, frames), dtype=v.dtype)
        held = self._pinned(xp, own, range(frames)) + lift
        return xp.concatenate([held, given], axis=-1 - d)

    def _split(self, u: Any, frames: int) -> tuple[Any, Any]:
        space = (slice(None),) * self.dims
        return u[(..., slice(frames), *space)], u[(..., slice(frames, None), *space)]

    def _lift(self, points: tuple[int, ...], frames: int) -> np.ndarray:
        """`(frames, *points)`: the straight line between the values at both walls."""
        out = np.zeros((len(self.channels), *points))
        for c, walls in enumerate(self.channels):
            for axis, (n, wall) in enumerate(zip(points, walls, strict=True)):
                if wall.values is not None:
                    s = np.linspace(0, 1, n) if self.nodes == "walls" else (np.arange(n) + 0.5) / n
                    low, high = wall.values
                    out[c] += (low + (high - low) * s).reshape(-1, *(1,) * (self.dims - 1 - axis))
        return np.tile(out, (frames // len(self.channels), *(1,) * self.dims))

    def _parities(self, numbers: Sequence[int] | None, axis: int) -> np.ndarray | int:
        """The parity of channels along an axis, for broadcasting; known inputs (None) are even."""
        if numbers is None:
            return 1
        signs = [self.channels[c % len(self.channels)][axis].parity for c in numbers]
        return np.reshape(signs, (-1, *(1,) * self.dims))

    def _continue(self, u: Any, numbers: Sequence[int] | None, *, pinned: bool = True) -> Any:
        """States mirrored at the walls."""
        xp = u.__array_namespace__()
        u = self._pinned(xp, u, numbers) if pinned and numbers is not None else u
        for axis, wall in enumerate(self.channels[0]):
            if wall.parity:
                place = u.ndim - self.dims + axis
                inside = slice(-2, 0, -1) if self.nodes == "walls" else slice(None, None, -1)
                mirrored = u[(*(slice(None),) * place, inside)]
                sign = xp.asarray(self._parities(numbers, axis), dtype=u.dtype)
                u = xp.concatenate([u, sign * mirrored], axis=place)
        return u

    def _pinned(self, xp: Any, u: Any, numbers: Sequence[int]) -> Any:
        """States with zeros at the walls that hold a value, where points lie on them."""
        if self.nodes == "cells":
            return u
        for axis, n in enumerate(u.shape[u.ndim - self.dims :]):
            odd = self._parities(numbers, axis) == -1
            ends = np.isin(np.arange(n), (0, n - 1)).reshape(-1, *(1,) * (self.dims - 1 - axis))
            u = xp.where(xp.asarray(odd & ends), xp.zeros((), dtype=u.dtype), u)
        return u


def grid_between(walls: Walls, grid: Grid) -> Grid:
    """The grid of what `enter` makes of states of a grid."""
    return Grid(walls.width(grid.channels), walls.points(grid.points))


class WalledSource(Source):
    """Trajectories between walls as periodic ones on the doubled grid."""

    def __init__(self, source: Source, walls: Walls, frames: int):
        self._source, self._walls, self._frames = source, walls, frames
        self.name = source.name
        samples, times, channels, *points = source.shape
        self.shape = (samples, times, walls.width(channels), *walls.points(tuple(points)))

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        return self._walls.enter(self._source.read(samples, times), self._frames)

    def origin(self, sample: int, time: int) -> tuple[int, int]:
        return self._source.origin(sample, time)


def parse_boundary(text: str, channels: int, dims: int) -> tuple[tuple[Wall, ...], ...]:
    """The walls of each channel along each axis that a text means.

    A text is a condition for everything (`dirichlet`), or several with commas, each for an axis (`x:
    dirichlet`), for a channel by its number or default name (`u: dirichlet, v: neumann`), or for both (`v y:
    neumann`). Values at the lower and the upper wall stand behind it: `y: dirichlet(0, 1)`. What is not named
    is periodic.

    **Raises:** `InputError` for what cannot be read, and for an axis or a channel that is not there.
    """
    names = tuple("uvw"[:channels]) if channels < 4 else tuple(f"u{i}" for i in range(channels))
    found = [[Wall()] * dims for _ in range(channels)]
    place = 0
    while place < len(text.strip()) or not place:
        entry = _ENTRY.match(text, place)
        if entry is None:
            raise InputError(
                f"--boundary '{text}' cannot be read from '{text[place:].strip()}' on. Write 'dirichlet', or "
                "'x: dirichlet(0, 1), y: periodic'."
            )
        place = entry.end()
        condition: Any = entry[2].lower()
        if condition not in get_args(Condition):
            raise unknown_name("boundary condition", entry[2], get_args(Condition))
        wall = Wall(condition, _values(text, condition, entry[3]))
        axes, chosen = range(dims), range(channels)
        for word in (entry[1] or "").split():
            if word in _AXES[:dims]:
                axes = [_AXES.index(word)]
            elif word in names or (word.isdigit() and int(word) < channels):
                chosen = [names.index(word) if word in names else int(word)]
            else:
                known = [*_AXES[:dims], *names, *map(str, range(channels))]
                raise unknown_name(f"axis or channel in --boundary '{text}'", word, known)
        for c in chosen:
            for axis in axes:
                found[c][axis] = wall
    return tuple(map(tuple, found))


def _values(text: str, condition: str, given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = (float(part) for part in given.split(","))
    except ValueError:
        raise InputError(
            f"--boundary '{text}': ({given}) is not two numbers. Write dirichlet(0, 1) for the values at the "
            "lower and the upper wall."
        ) from None
    if condition != "dirichlet" or not np.isfinite([low, high]).all():
        raise InputError(f"--boundary '{text}': only dirichlet takes values, two finite numbers.")
    return low, high


def find_walls(text: str, source: Source, nodes: str | None = None) -> Walls | None:
    """The walls that a text means for trajectories, with the values at the walls measured where they are not
    given. Without `nodes` the data say where the points are. None if everything is periodic.

    **Raises:** `InputError` as `parse_boundary` does, and for values at a wall that are not constant.
    """
    channels = parse_boundary(text, source.shape[2], len(source.shape) - 3)
    if nodes is not None and nodes not in get_args(Nodes):
        raise unknown_name("place of the points (--nodes)", nodes, get_args(Nodes))
    if not any(wall.parity for wall in channels[0]):
        return None
    samples = np.linspace(0, source.shape[0] - 1, min(source.shape[0], 32)).astype(int)
    times = np.unique(np.linspace(0, source.shape[1] - 1, min(source.shape[1], 16)).astype(int))
    states = source.read(np.unique(samples), times).astype(float)
    chosen: Any = nodes or _place(states, channels)
    measured = []
    for c, walls in enumerate(channels):
        each = []
        for axis, wall in enumerate(walls):
            if wall.condition == "dirichlet" and wall.values is None:
                u = np.moveaxis(states[:, :, c], 2 + axis, -1)
                wall = replace(wall, values=_measured(u, chosen, c, axis))
            each.append(wall)
        measured.append(tuple(each))
    return Walls(tuple(measured), chosen)


class Ends:
    """What states look like at both ends of an axis: whether they are between walls, and of which kind."""

    def __init__(self):
        self._first: list[np.ndarray] = []
        self._sums = np.zeros(5)

    def add(self, u: np.ndarray) -> None:
        """One state `(channels, ..., points)` with the axis last."""
        if u.shape[-1] < 6:
            return
        # Values whose squares leave float32 are refused afterwards, with a message of their own.
        u = u.astype(np.float64)
        size = np.maximum(np.sqrt((u**2).mean(axis=tuple(range(1, u.ndim)), keepdims=True)), 1e-30)
        v = u / size
        inner = v[..., 1:]
        pairs = ((v, 1), (v, -1), (inner, 1), (inner, -1))
        self._sums += [*(np.square(w - s * w[..., ::-1]).mean() for w, s in pairs), 1]
        if len(self._first) < _STATES:
            ends = np.stack([u[..., :3], u[..., :-4:-1]]).reshape(2, len(u), -1, 3)
            self._first.append(np.concatenate([ends, _steepness(u)], axis=-1))

    def mirrored(self) -> bool:
        """Whether every state is an odd or an even continuation already."""
        return bool(self._sums[4] and (self._sums[:4] / self._sums[4]).min() < _MIRRORED**2)

    def hint(self, axis: str) -> str:
        """The flag to use for what is seen at the walls, if that is constant or without flux."""
        found = [self._kind(c) for c in range(self._first[0].shape[1])] if self._first else [None]
        kinds = {kind for kind in found if kind is not None}
        if None in found or not kinds:
            return "Or make the states periodic."
        if len(kinds) == 1:
            return f'They look like walls: use --boundary "{axis}: {kinds.pop()}".'
        named = ", ".join(f"{c} {axis}: {kind}" for c, kind in enumerate(found))
        return f'They look like walls: use --boundary "{named}".'

    def _kind(self, c: int) -> str | None:
        ends = np.stack([first[:, c] for first in self._first])
        u, slope = ends[..., :3], np.sqrt((ends[..., 3] ** 2).mean())
        values = (u[..., 0], u @ _TO_WALL)
        spread = lambda value: np.sqrt(((value - value.mean(axis=(0, 2), keepdims=True)) ** 2).mean())
        if min(map(spread, values)) < _HELD * max(spread(u[..., 2]), 1e-30):
            return "dirichlet"
        flux = (-3 * u[..., 0] + 4 * u[..., 1] - u[..., 2], -2 * u[..., 0] + 3 * u[..., 1] - u[..., 2])
        # Over the points at half a cell and at none.
        if (
            min(float(np.sqrt((f**2).mean())) / n for f, n in zip(flux, (2, 1), strict=True))
            < _NO_FLUX * slope
        ):
            return "neumann"
        return None


def _steepness(u: np.ndarray) -> np.ndarray:
    """The root mean square of neighbouring differences, one number for each end, channel and line."""
    steep = np.sqrt(np.square(np.diff(u, axis=-1)).mean(axis=-1)).reshape(len(u), -1, 1)
    return np.stack([steep, steep])


def _ends(u: np.ndarray, nodes: str) -> list[np.ndarray]:
    """The states at both walls, from states whose last axis runs from wall to wall."""
    if nodes == "walls" or u.shape[-1] < 3:
        return [u[..., 0], u[..., -1]]
    return [u[..., :3] @ _TO_WALL, u[..., :-4:-1] @ _TO_WALL]


def _measured(u: np.ndarray, nodes: str, c: int, axis: int) -> tuple[float, float]:
    size, spread, values = np.sqrt((u**2).mean()), u.std(), []
    for side, end in zip(("lower", "upper"), _ends(u, nodes), strict=True):
        if end.std() > _VARIES * spread:
            raise InputError(
                f"The values of channel {c} at the {side} wall along {_AXES[axis]} vary by {end.std():.2g}, "
                f"where the channel varies by {spread:.2g}: dirichlet needs constants. Use neumann (no "
                "flux), another --nodes, or leave the axis periodic."
            )
        values.append(float(end.mean()) if abs(end.mean()) > _ZERO[nodes] * size else 0.0)
    return values[0], values[1]


def _place(states: np.ndarray, channels: tuple[tuple[Wall, ...], ...]) -> Nodes:
    """Whether the outermost points lie on the walls, by what the conditions say of the first three points:
    constant values, or an even polynomial about the wall."""
    misfits = {"walls": 0.0, "cells": 0.0}
    for c, walls in enumerate(channels):
        for axis, wall in enumerate(walls):
            if not wall.parity:
                continue
            u = np.moveaxis(states[:, :, c], 2 + axis, -1)
            for nodes in misfits:
                for end in (u[..., :3], u[..., :-4:-1]):
                    if wall.condition == "dirichlet":
                        misfit = _ends(end, nodes)[0].std() / max(u.std(), 1e-300)
                    else:
                        first, second = end[..., 1] - end[..., 0], end[..., 2] - end[..., 0]
                        rate = 4 if nodes == "walls" else 3
                        misfit = np.sqrt(
                            ((rate * first - second) ** 2).mean() / max((second**2).mean(), 1e-300)
                        )
                    misfits[nodes] += float(misfit)
    return "walls" if misfits["walls"] <= misfits["cells"] else "cells"
