"""Pairs of neighbouring states: those that weights are fitted to, and held-out ones that judge them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# One trajectory in ten is held out.
_HELD_OUT = 0.1
# Enough pairs to fit a few columns for each mode well above rounding, few enough that a pass over them takes
# about a second on two cores; measured on the ten tasks.
_FITTED_POINTS = 1_500_000
_MIN_PAIRS, _MAX_PAIRS = 128, 2500
_MIN_HELD_OUT = 16
# About 16 MB of complex numbers.
_BLOCK_NUMBERS = 2**21


class Pairs(NamedTuple):
    """States and their successors, `(pairs, channels, *points)` each."""

    now: np.ndarray
    then: np.ndarray

    def first(self, count: int) -> "Pairs":
        return Pairs(self.now[:count], self.then[:count])

    def slower(self) -> "Pairs":
        """The half that changes least, in the old order, which is a random one."""
        change = ((self.then - self.now) ** 2).reshape(len(self.now), -1).sum(1)
        kept = np.sort(np.argsort(change)[: -(-len(change) // 2)])
        return Pairs(self.now[kept], self.then[kept])

    def blocks(self, fields: int) -> Iterator["Pairs"]:
        """Blocks of pairs so small that this many fields of each state fit in memory; float32."""
        size = block_size(self.now.shape[2:], fields)
        for i in range(0, len(self.now), size):
            yield Pairs(*(u[i : i + size].astype(np.float32) for u in self))


class SplitPairs(NamedTuple):
    """Pairs to fit, and pairs of held-out trajectories to judge by."""

    fit: Pairs
    held_out: Pairs

    def slower(self) -> "SplitPairs":
        """The half of either part that changes least: where one product says most about the step."""
        return SplitPairs(self.fit.slower(), self.held_out.slower())


def block_size(points: tuple[int, ...], fields: int) -> int:
    """How many states are taken at once if each needs this many fields."""
    return max(1, _BLOCK_NUMBERS // (fields * int(np.prod(points))))


def split(trajectories: np.ndarray) -> SplitPairs:
    """Pairs of neighbours, drawn evenly from the fitted and from the held-out trajectories."""
    samples, times = trajectories.shape[:2]
    last = held_out(trajectories)
    if samples > 1:
        fitted = trajectories[: samples - len(last)]
    else:
        fitted = trajectories[:, : times - last.shape[1] + 1]
    count = int(np.clip(_FITTED_POINTS // np.prod(trajectories.shape[3:]), _MIN_PAIRS, _MAX_PAIRS))
    return SplitPairs(_draw(fitted, count), _draw(last, max(_MIN_HELD_OUT, count // 5)))


def held_out(trajectories: np.ndarray) -> np.ndarray:
    """The last trajectories; of a single one, its last part, from a state that is fitted too."""
    samples, times = trajectories.shape[:2]
    if samples > 1:
        return trajectories[samples - max(1, round(_HELD_OUT * samples)) :]
    return trajectories[:, min(times - 2, round((1 - _HELD_OUT) * (times - 1))) :]


def _draw(trajectories: np.ndarray, count: int) -> Pairs:
    """At most this many pairs, always the same ones, evenly at random."""
    samples, times = trajectories.shape[:2]
    index = np.random.default_rng(0).permutation(samples * (times - 1))[:count]
    i, t = np.divmod(index, times - 1)
    return Pairs(trajectories[i, t], trajectories[i, t + 1])
