"""From runs to the few numbers a table shows: medians over seeds, their spread, and what is missing."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

RESAMPLES = 2_000
LEAST_SEEDS = 3
_SEED = 20_240_229


@dataclasses.dataclass(frozen=True)
class Spread:
    """A sample over seeds. Non-finite values are infinite, and counted.

    `interval` is the bootstrap 95 % interval of the median, from three values on.
    """

    median: float
    lower: float
    upper: float
    interval: tuple[float, float] | None
    count: int
    nonfinite: int


def spread(values: Iterable[float]) -> Spread:
    """Median, quartiles and bootstrap interval; NaN and infinity both count as worse than any number."""
    sample = np.asarray([value if math.isfinite(value) else math.inf for value in values], np.float64)
    if sample.size == 0:
        raise ValueError("A spread needs at least one value.")
    sample.sort()
    interval = None
    if sample.size >= LEAST_SEEDS:
        medians = np.sort(_medians(sample[_resamples(sample.size)]))
        interval = (quantile(medians, 0.025), quantile(medians, 0.975))
    return Spread(
        quantile(sample, 0.5),
        quantile(sample, 0.25),
        quantile(sample, 0.75),
        interval,
        int(sample.size),
        int(np.isinf(sample).sum()),
    )


def quantile(ordered: np.ndarray, q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours.

    `np.quantile` answers NaN as soon as it meets two infinities; here between a number and
    infinity lies infinity.
    """
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    weight = position - below
    if weight == 0:
        return float(ordered[below])
    low, high = float(ordered[below]), float(ordered[below + 1])
    return math.inf if math.isinf(high) else low + weight * (high - low)


def ratio(ours: float, theirs: float | None) -> float | None:
    """ours / theirs; None where that says nothing: no other number, or one that is zero or non-finite."""
    if theirs is None or not math.isfinite(theirs) or theirs == 0 or math.isnan(ours):
        return None
    return ours / theirs


@dataclasses.dataclass(frozen=True)
class Band:
    """Per step, the median over seeds with its quartiles."""

    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def band(curves: Sequence[Sequence[float]]) -> Band:
    """Median and quartiles over seeds at every step, up to the shortest curve."""
    steps = min(len(curve) for curve in curves)
    ordered = np.sort(np.asarray([curve[:steps] for curve in curves], np.float64), axis=0)
    return Band(*(_quantile_rows(ordered, q) for q in (0.5, 0.25, 0.75)))


def _quantile_rows(ordered: np.ndarray, q: float) -> np.ndarray:
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    weight = position - below
    if weight == 0:
        return ordered[below]
    low, high = ordered[below], ordered[below + 1]
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(high), np.inf, low + weight * (high - low))


def _medians(samples: np.ndarray) -> np.ndarray:
    return _quantile_rows(np.sort(samples, axis=1).T, 0.5)


@functools.lru_cache(maxsize=64)
def _resamples(size: int) -> np.ndarray:
    """Indices of the bootstrap samples; seeded, so that the same store gives the same page."""
    return np.random.default_rng(_SEED).integers(0, size, (RESAMPLES, size))
