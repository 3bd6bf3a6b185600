"""A look at trajectories before learning from them: moments, units to learn in, and what usually goes wrong.

Pairs of neighbouring states are drawn from all over the source, so a large one is not read whole.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from sgno.errors import InputError
from sgno.io.source import Selection, Source
from sgno.io.walls import Ends, WalledSource, Walls

Normalise = Literal["none", "scale", "standard"]

_SAMPLED_BYTES = 64 * 2**20
_MIN_PAIRS, _MAX_PAIRS = 4, 2048
# Scores are made of squares in float32, which overflow from 1e19 on.
_HUGE, _TINY = 1e15, 1e-6
# The jump at the boundary against neighbours inside: 1 for periodic states, whatever they are.
_NOT_PERIODIC, _REPEATED, _KINK = 3.0, 0.02, 5.0
# The linear relation between consecutive frames, 1 for any linear evolution; n unrelated pairs give n^-1/2.
_UNRELATED, _JUDGED_PAIRS = 0.35, 16
_STILL = 1e-6
# A channel that varies by less than this part of its size is constant, and its spread is rounding.
_CONSTANT = 1e-6
# The largest value of a state against that of the usual one.
_OUTLIER = 1e3
# Along each axis the relation is measured on at most this many points.
_RELATION_POINTS = {1: 256, 2: 64, 3: 32}


class Moments(NamedTuple):
    """Of each channel over samples, times and points."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    rms: tuple[float, ...]


class Survey(NamedTuple):
    """What was seen: moments, and warnings as sentences."""

    moments: Moments
    warnings: tuple[str, ...]


class _Pairs(NamedTuple):
    """Some states, their successors, and where they are from."""

    now: np.ndarray
    then: np.ndarray
    sample: int
    time: int


def survey(
    source: Source, channels: int | None = None, history: int = 1, walls: Walls | None = None
) -> Survey:
    """Moments and warnings, from pairs of neighbouring states drawn at random.

    Of states with earlier frames and known inputs behind their own `channels`, every channel has moments,
    those of an earlier frame being those of the present one; warnings are about the state alone.

    **Raises:** `InputError` if a value is so large that scores would overflow.
    """
    width, points = source.shape[2], source.shape[3:]
    channels = width if channels is None else channels
    own = slice(channels)
    total = np.zeros((3, width))
    boundary = [np.zeros((5, channels)) for _ in points]
    ends = [Ends() for _ in points]
    relation = _Relation(points)
    peaks, places = [], []
    for pair in _draw(source):
        u = pair.now
        moments = [u.mean(axis=_space(u), dtype=np.float64), _mean_square(u)]
        total += np.stack([*moments, _mean_square(pair.then - u)])
        for axis, sums in enumerate(boundary):
            sums += _boundary(np.moveaxis(u[own], axis + 1, -1))
            ends[axis].add(np.moveaxis(u[own], axis + 1, -1))
        relation.add(u[own], pair.then[own])
        peaks.append(np.abs(u[own]).reshape(channels, -1).max(axis=1))
        places.append(source.origin(pair.sample, pair.time))
    count, largest, usual = len(peaks), np.max(peaks, axis=0), np.median(peaks, axis=0)
    where = [places[i] for i in np.argmax(peaks, axis=0)]
    for frame in range(1, history):
        total[:, frame * channels : (frame + 1) * channels] = total[:, own]
    mean, square = total[0] / count, total[1] / count
    std = np.sqrt(np.maximum(square - mean**2, 0))
    _refuse_huge(source, largest, where)
    warnings = [
        *_layout_warnings(channels, points),
        *_channel_warnings(mean[own], std[own], np.sqrt(square[own]), largest, usual, where),
        *_boundary_warnings(boundary, ends, std[own], walls),
        *_time_warnings(np.sqrt(total[2, own] / count), std[own], relation, count),
    ]
    moments = Moments(*(tuple(float(x) for x in values) for values in (mean, std, np.sqrt(square))))
    if walls is not None:
        doubled = WalledSource(source, walls, history * channels)
        moments = survey(doubled, channels, history).moments
    return Survey(moments, tuple(warnings))


def _draw(source: Source) -> Iterator[_Pairs]:
    samples, times = source.shape[:2]
    state = 4 * math.prod(source.shape[2:])
    most = int(np.clip(_SAMPLED_BYTES // (2 * state), _MIN_PAIRS, _MAX_PAIRS))
    windows = samples * (times - 1)
    chosen = np.random.default_rng(0).choice(windows, min(most, windows), replace=False)
    for window in np.sort(chosen):
        sample, time = divmod(int(window), times - 1)
        now, then = source.read([sample], slice(time, time + 2))[0]
        yield _Pairs(now, then, sample, time)


def _space(u: np.ndarray) -> tuple[int, ...]:
    return tuple(range(1, u.ndim))


def _mean_square(u: np.ndarray) -> np.ndarray:
    # float64 only in the sum: values up to 3e38 square beyond float32.
    with np.errstate(over="ignore"):
        return np.square(u, dtype=np.float64).mean(axis=_space(u))


def _boundary(u: np.ndarray) -> np.ndarray:
    """Mean squares along the last axis: first differences inside, at the seam; second differences inside, at
    the seam, and what the slopes at both ends differ by."""
    inside = np.diff(u, axis=-1)
    seam = u[..., :1] - u[..., -1:]
    second = np.diff(inside, axis=-1) if u.shape[-1] > 2 else np.zeros_like(inside)
    kink = u[..., 1:2] - 2 * u[..., :1] + u[..., -1:]
    slopes = inside[..., :1] - inside[..., -1:]
    return np.stack([_mean_square(part) for part in (inside, seam, second, kink, slopes)])


class _Relation:
    """The linear relation of each Fourier mode with its successor, averaged over modes by energy:

    sum_k |E[u^ conj(u+^)]| / sum_k (E|u^|² E|u+^|²)^(1/2),   mean states removed.
    """

    def __init__(self, points: tuple[int, ...]):
        most = _RELATION_POINTS[len(points)]
        self._thin = (slice(None), *(slice(None, None, -(-n // most)) for n in points))
        self._sums: list[np.ndarray] | None = None

    def add(self, now: np.ndarray, then: np.ndarray) -> None:
        # Here, because the package starts JAX, which a file that is refused does not need.
        from sgno.spectral import to_modes

        thinned = (u[self._thin].astype(np.float64) for u in (now, then))
        a, b = (np.asarray(to_modes(u, u.shape[1:])) for u in thinned)
        new = [a, b, np.abs(a) ** 2, np.abs(b) ** 2, a * b.conj()]
        self._sums = new if self._sums is None else [x + y for x, y in zip(self._sums, new, strict=True)]

    def strength(self, count: int) -> float:
        assert self._sums is not None
        a, b, power_a, power_b, cross = (x / count for x in self._sums)
        together = np.abs(cross - a * b.conj()).sum()
        alone = np.maximum(power_a - np.abs(a) ** 2, 0) * np.maximum(power_b - np.abs(b) ** 2, 0)
        return float(together / max(np.sqrt(alone).sum(), 1e-300))


def _refuse_huge(source: Source, largest: np.ndarray, where: list[tuple[int, int]]) -> None:
    c = int(np.argmax(largest))
    if largest[c] > _HUGE:
        sample, time = where[c]
        raise InputError(
            f"{source.name} has the value {largest[c]:.3g} in channel {c} (sample {sample}, step {time}), "
            f"whose square leaves float32. Use units in which values stay below {_HUGE:.0e}, or leave it out."
        )


def _layout_warnings(channels: int, points: tuple[int, ...]) -> Iterator[str]:
    if channels > 8 and channels > max(points):
        yield (
            f"There are {channels} channels on a grid of {'x'.join(map(str, points))} points: are channels "
            'and space exchanged? Say so with --layout "sample time space channel".'
        )


def _channel_warnings(mean, std, rms, largest, usual, where) -> Iterator[str]:
    for c in range(len(mean)):
        if std[c] <= _CONSTANT * rms[c]:
            yield f"Channel {c} is constant ({mean[c]:.4g}): there is nothing to learn in it. Leave it out."
        elif rms[c] < _TINY:
            yield (
                f"Channel {c} has values of about {rms[c]:.2g}, so small that scores lose digits. "
                "Use units in which they are nearer to one."
            )
        elif largest[c] > _OUTLIER * usual[c] > 0:
            sample, time = where[c]
            yield (
                f"Channel {c} reaches {largest[c]:.3g} in sample {sample}, step {time}, where states usually "
                f"reach {usual[c]:.3g}. Check that sample."
            )


def _boundary_warnings(
    boundary: list[np.ndarray], ends: list[Ends], std: np.ndarray, walls: Walls | None
) -> Iterator[str]:
    varying = std > 0
    for number, (axis, sums) in enumerate(zip("xyz", boundary, strict=False)):
        if walls is not None and walls.channels[0][number].parity:
            continue
        # The first and the last point of an even continuation are the same.
        hint, mirrored = ends[number].hint(axis), ends[number].mirrored()
        # Each channel in units of its own spread, so that no channel hides another.
        inside, seam, second, kink, slopes = np.sqrt(
            (sums[:, varying] / np.maximum(std[varying] ** 2, 1e-300)).sum(axis=1)
        )
        if inside == 0:
            continue
        jump = seam / inside
        if jump > _NOT_PERIODIC:
            yield (
                f"Not periodic along {axis}: the jump from the last point to the first is {jump:.1f} times a "
                "usual difference between neighbours. Fourier-based models (sgno, sgno-x, fno, linear) "
                f"assume periodic states; expect errors at the boundary. {hint}"
            )
        elif jump < _REPEATED and slopes <= _KINK * max(second, 1e-300) and not mirrored:
            yield (
                f"Along {axis} the last point repeats the first: a periodic grid has its end point once. "
                "Leave out the last point."
            )
        elif (jump < _REPEATED and not mirrored) or (second > 0 and kink > _KINK * second):
            yield (
                f"Not periodic along {axis}: the states meet there with a kink (walls?). Fourier-based "
                "models (sgno, sgno-x, fno, linear) assume periodic states; expect errors at the boundary. "
                f"{hint}"
            )


def _time_warnings(increment, std, relation: _Relation, count: int) -> Iterator[str]:
    varying = std > 0
    if not varying.any():
        return
    change = float(np.sqrt(np.mean((increment[varying] / std[varying]) ** 2)))
    if change < _STILL:
        yield (
            f"Consecutive frames differ by {change:.1g} of the spread, which is rounding in float32: "
            "the time step is too small. Keep one frame in many."
        )
    elif count >= _JUDGED_PAIRS and (strength := relation.strength(count)) < _UNRELATED:
        yield (
            f"Consecutive frames are nearly unrelated (relation {strength:.2f}, where 1 is exact and 0 none; "
            f"they differ by {change:.2g} of the spread): the time step is too large to learn one step. "
            "Save frames more often."
        )


@dataclasses.dataclass(frozen=True)
class ChannelUnits:
    """`v = (u - mean) / scale`, channel by channel."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def apply(self, train: np.ndarray | Source) -> np.ndarray | Source:
        """Trajectories in these units; those of a source are converted as they are read."""
        shape = (-1, *(1,) * (len(train.shape) - 3))
        m, s = (np.asarray(values, np.float32).reshape(shape) for values in (self.mean, self.scale))
        return _Converted(train, m, s) if isinstance(train, Source) else (train - m) / s


class _Converted(Source):
    """Another source in other units."""

    def __init__(self, source: Source, mean: np.ndarray, scale: np.ndarray):
        self._source, self._mean, self._scale = source, mean, scale
        self.name, self.shape = source.name, source.shape

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        states = self._source.read(samples, times)
        np.subtract(states, self._mean, out=states)
        return np.divide(states, self._scale, out=states)


def choose_units(normalise: Normalise, moments: Moments | None) -> ChannelUnits | None:
    """The units that channels of these moments call for.

    - `standard`: mean 0 and standard deviation 1, for networks.
    - `scale`: root mean square 1, zero kept where it is: a linear step stays linear and a product of states
      a product, so it is what models take that have the form of an equation.
    - `none`: the units of the data.
    """
    if normalise == "none" or moments is None:
        return None
    if normalise == "scale":
        return ChannelUnits((0.0,) * len(moments.rms), tuple(rms or 1.0 for rms in moments.rms))
    scale = (
        std if std > _CONSTANT * rms else max(abs(mean), 1.0)
        for mean, std, rms in zip(moments.mean, moments.std, moments.rms, strict=True)
    )
    return ChannelUnits(moments.mean, tuple(scale))
