"""Which products the closure has: chosen by regression, judged on held-out training data."""

import itertools
from typing import NamedTuple

import numpy as np

from sgno.grid import Grid
from sgno.identify.screening import BothEnds, Names, Pairs, two_stage_score
from sgno.sgno_x.config import two_thirds
from sgno.sgno_x.symbols import factor_names

# A further product has to divide the held-out error by this, or it is fitting the scheme's own error.
_WORTH = np.log(4.0)
# Of each size, so many sets go from the first regression to the second.
_SHORTLIST = 4
# The order by forward selection is improved by exchanges, at most this many rounds for each size.
_EXCHANGES = 3
# The first regression cannot tell sets apart that differ by less than this.
_TIE = np.log(1.5)
_PROBE_NUMBERS = 2**19
_ALL_PAIRS = 2000


class Selection(NamedTuple):
    """The products kept, the cutoff of their factors, whether there is a forcing, and the held-out score."""

    terms: tuple[Names, ...]
    cutoff: tuple[int, ...]
    forcing: bool
    score: float


def dictionary(grid: Grid, degree: int) -> list[Names]:
    """Products that may enter: all pairs of factors, and all triples of unfiltered channels."""
    names = factor_names(grid.channels, grid.num_spatial_dims)
    pairs = list(itertools.combinations_with_replacement(names, 2))
    plain = [f"{c}:1" for c in range(grid.channels)]
    triples = list(itertools.combinations_with_replacement(plain, 3)) if degree == 3 else []
    return [*pairs, *triples]


def select(pairs: Pairs, grid: Grid, *, degree: int, most: int, forcing: bool | None) -> Selection:
    """Products by forward selection with exchanges; each has to earn its place on held-out pairs.

    **Arguments:**

    - `degree`: the largest number of factors of a product.
    - `most`: the largest number of products; with 0 only the forcing is decided.
    - `forcing`: whether there is one, or `None` to let the held-out pairs decide.
    """
    cutoff = two_thirds(grid.points)
    candidates = dictionary(grid, degree) if most else []
    screen = Screen(BothEnds(pairs, grid, candidates, cutoff), forcing=forcing is not False)
    probes = max(24, _PROBE_NUMBERS // (8 * grid.channels * int(np.prod(grid.points))))

    def judge(kept: tuple[int, ...]) -> float:
        names = [candidates[j] for j in kept]
        constant = forcing is not False
        return two_stage_score(pairs, grid, names, cutoff, forcing=constant, most=probes)

    none: tuple[int, ...] = ()
    best, best_score = none, screen.score(none)
    kept = none
    for size in range(1, min(most, len(candidates)) + 1):
        kept = screen.grow(kept)
        for trial in screen.shortlist(size):
            score = min(screen.score(trial), judge(trial))
            if score + size * _WORTH < best_score + len(best) * _WORTH:
                best, best_score = trial, score
    constant = forcing is not False
    if forcing is None:
        constant = bool(screen.regression.score(best, forcing=False) - screen.score(best) > _WORTH)
    names = tuple(candidates[j] for j in best)
    if names:
        cutoff = _cutoff(pairs, grid, names, forcing=constant)
    return Selection(names, cutoff, constant, best_score)


class Screen:
    """Scores of the first regression, remembered."""

    def __init__(self, regression: BothEnds, *, forcing: bool):
        self.regression = regression
        self.forcing = forcing
        self.scores: dict[tuple[int, ...], float] = {}

    def score(self, kept: tuple[int, ...]) -> float:
        kept = tuple(sorted(kept))
        if kept not in self.scores:
            self.scores[kept] = self.regression.score(kept, forcing=self.forcing)
        return self.scores[kept]

    def grow(self, kept: tuple[int, ...]) -> tuple[int, ...]:
        """One more product, then exchanges while they help.

        Of two products, neither need be of use alone (the two halves of an advection): all pairs are tried.
        """
        if len(kept) == 1 and self.regression.num * (self.regression.num - 1) // 2 <= _ALL_PAIRS:
            return min(itertools.combinations(range(self.regression.num), 2), key=self.score)
        kept = self._best(kept)
        for _ in range(_EXCHANGES):
            before = self.score(kept)
            for out in kept:
                trial = self._best(tuple(j for j in kept if j != out))
                kept = min(kept, trial, key=self.score)
            if self.score(kept) > before - 1e-3:
                break
        return kept

    def shortlist(self, size: int) -> list[tuple[int, ...]]:
        """The best sets of this size met so far."""
        met = sorted((score, kept) for kept, score in self.scores.items() if len(kept) == size)
        return [kept for _, kept in met[:_SHORTLIST]]

    def _best(self, kept: tuple[int, ...]) -> tuple[int, ...]:
        open_ = [j for j in range(self.regression.num) if j not in kept]
        return min(((*kept, j) for j in open_), key=self.score)


def _cutoff(pairs: Pairs, grid: Grid, names: tuple[Names, ...], *, forcing: bool) -> tuple[int, ...]:
    """Two thirds of Nyquist, unless one half, or all below Nyquist, explains the data clearly better."""
    half = tuple(max(1, n // 4 - 1) for n in grid.points)
    whole = tuple((n - 1) // 2 for n in grid.points)
    everything = range(len(names))
    best, best_score = two_thirds(grid.points), np.inf
    for cutoff in (best, half, whole):
        score = BothEnds(pairs, grid, names, cutoff).score(everything, forcing=forcing)
        if score < best_score - _TIE:
            best, best_score = cutoff, score
    return best
