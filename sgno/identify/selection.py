"""Which products the closure has: chosen by regression, judged on held-out training data."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sgno.grid import Grid
from sgno.identify.pairs import SplitPairs
from sgno.identify.regression import ROUNDING, Gram
from sgno.progress import tell
from sgno.sgno_x.closure import Terms, products
from sgno.sgno_x.symbols import factor_names, two_thirds
from sgno.spectral import multiplicity, to_modes

Names = tuple[str, ...]

# A further product has to divide the held-out error by this. Chosen on the ten tasks: a product that gains
# less fits the error of the scheme.
_WORTH = np.log(4.0)
# This many sets of each size go from the first regression to the second.
_SHORTLIST = 4
# The order by forward selection is improved by exchanges, at most this many rounds for each size.
_EXCHANGES = 3
# The first regression cannot tell sets apart that differ by less than this.
_TIE = np.log(1.5)
# Limits of work: 4 MB of states for the second regression, 2000 pairs of products, normal equations of 64 MB.
_PROBE_NUMBERS = 2**19
_ALL_PAIRS = 2000
_GRAM_BYTES = 64 * 2**20
_MAX_MODES = 512
_STAGE_ITERATIONS = 6


class Selection(NamedTuple):
    """The products kept, the cutoff of their factors, and whether there is a forcing."""

    terms: tuple[Names, ...]
    cutoff: tuple[int, ...]
    forcing: bool


def dictionary(grid: Grid, degree: int) -> list[Names]:
    """Products that may enter: all pairs of factors, and all triples of unfiltered channels."""
    names = factor_names(grid.channels, grid.num_spatial_dims)
    pairs = list(itertools.combinations_with_replacement(names, 2))
    plain = [f"{c}:1" for c in range(grid.channels)]
    triples = list(itertools.combinations_with_replacement(plain, 3)) if degree == 3 else []
    return [*pairs, *triples]


def select(pairs: SplitPairs, grid: Grid, *, degree: int, most: int, forcing: bool | None) -> Selection:
    """Products by forward selection with exchanges; each has to lower the error on held-out pairs.

    **Arguments:**

    - `degree`: the largest number of factors of a product.
    - `most`: the largest number of products; with 0 only the forcing is decided.
    - `forcing`: whether there is one, or `None` to let the held-out pairs decide.
    """
    cutoff = two_thirds(grid.points)
    candidates = dictionary(grid, degree) if most else []
    constant = forcing is not False
    search = Search(PairRegression(pairs, grid, candidates, cutoff), forcing=constant)
    probes = max(24, _PROBE_NUMBERS // (8 * grid.channels * int(np.prod(grid.points))))
    best: tuple[int, ...] = ()
    best_score = search.score(best)
    kept = best
    sizes = min(most, len(candidates))
    for size in range(1, sizes + 1):
        tell("screening products", size - 1, sizes)
        kept = search.grow(kept)
        for trial in search.shortlist(size):
            names = [candidates[j] for j in trial]
            sharper = two_stage_score(pairs, grid, names, cutoff, forcing=constant, most=probes)
            score = min(search.score(trial), sharper)
            if score + size * _WORTH < best_score + len(best) * _WORTH:
                best, best_score = trial, score
    if forcing is None:
        constant = bool(search.regression.score(best, forcing=False) - search.score(best) > _WORTH)
    names = tuple(candidates[j] for j in best)
    if names:
        cutoff = _cutoff(pairs, grid, names, forcing=constant)
    return Selection(names, cutoff, constant)


class PairRegression:
    """The next state regressed on the state, the products at both ends of the step, and a constant:

        v+ = g v + sum_j (p_0j q_j(v) + p_1j q_j(v+)) + c,   every coefficient free for each mode.

    Products at both ends stand for their mean over the step: one end alone would leave most of a large step
    unexplained whatever the product. All candidates share one set of normal equations, on a sample of modes.
    """

    def __init__(self, pairs: SplitPairs, grid: Grid, candidates: Sequence[Names], cutoff: tuple[int, ...]):
        self.channels, self.num_candidates = grid.channels, len(candidates)
        columns = self.channels + 2 * self.num_candidates + 1
        weight = multiplicity(grid.points).reshape(-1)
        most = max(16, min(_MAX_MODES, _GRAM_BYTES // (16 * grid.channels * columns**2)))
        chosen = np.arange(weight.size)
        if weight.size > most:
            chosen = np.sort(np.random.default_rng(0).choice(weight.size, most, replace=False))
        self.fit, self.held_out, self.scale = Gram(), Gram(), IncrementScale(weight[chosen])
        terms = Terms(candidates)
        D = terms.filters(grid.points, cutoff).astype(np.complex64)
        for part, gram in ((pairs.fit, self.fit), (pairs.held_out, self.held_out)):
            for now, then in part.blocks(columns):
                v, v_then = to_modes(now, grid.points), to_modes(then, grid.points)
                x = [v, *(host_products(w, D, terms, grid) for w in (v, v_then)), np.ones_like(v[:, :1])]
                x = _flat(np.concatenate(x, axis=1), grid)[..., chosen]
                y = _flat(v_then, grid)[..., chosen]
                gram.add(np.repeat(x[:, None], self.channels, axis=1), y)
                if gram is self.held_out:
                    self.scale.add(x[:, : self.channels], y)

    def score(self, terms: Sequence[int], *, forcing: bool) -> float:
        C, n = self.channels, self.num_candidates
        constant = [C + 2 * n] if forcing else []
        columns = np.array([*range(C), *(C + j for j in terms), *(C + n + j for j in terms), *constant])
        return self.scale.score(self.held_out.error(self.fit.solve(columns), columns))


def two_stage_score(
    pairs: SplitPairs,
    grid: Grid,
    names: Sequence[Names],
    cutoff: tuple[int, ...],
    *,
    forcing: bool,
    most: int,
) -> float:
    """The score of the two-stage step with free coefficients for each mode and product,

        a = g v + sum_j P_j q_j(v) + f,    v+ = a + sum_j Q_j (q_j(a) - q_j(v)),

    found by least squares with `a` from the coefficients of the iteration before. Far sharper than
    `PairRegression` where the step is one of this form, and slower: products of `a` are new each time.
    """
    C, J, terms = grid.channels, len(names), Terms(names)
    D = terms.filters(grid.points, cutoff).astype(np.complex64)
    states = []
    for part in pairs:
        now, then = (to_modes(u.astype(np.float32), grid.points) for u in part.first(most))
        q = host_products(now, D, terms, grid)
        x = [now, q, np.ones_like(now[:, :1])] if forcing else [now, q]
        states.append((now, q, np.concatenate(x, axis=1), then))
    scale = IncrementScale(multiplicity(grid.points).reshape(-1))
    scale.add(*(_flat(states[1][i], grid) for i in (0, 3)))
    P: np.ndarray | None = None
    best = np.inf
    for _ in range(_STAGE_ITERATIONS):
        grams = []
        for _, q, x, then in states:
            # Before there is an `a`, the next state itself stands for it.
            a = then if P is None else np.einsum("ci...,bi...->bc...", P, x).astype(np.complex64)
            x = np.concatenate([x, host_products(a, D, terms, grid) - q], axis=1)
            gram = Gram()
            gram.add(np.repeat(_flat(x, grid)[:, None], C, axis=1), _flat(then, grid))
            grams.append(gram)
        c = grams[0].solve()
        error = scale.score(grams[1].error(c))
        best = min(best, error) if np.isfinite(error) else best
        c = np.moveaxis(c, 1, 2).reshape(C, -1, *D.shape[1:])
        linear = c[:, : c.shape[1] - J]
        if P is None:
            # The first pass has the product at the far end: half of its weight belongs to the near end.
            linear[:, C : C + J] += 0.5 * c[:, -J:]
        if not np.isfinite(linear).all() or np.abs(linear).max() > 1e6:
            break
        P = linear
    return float(best)


class IncrementScale:
    """What an error is measured by: the increments of the held-out pairs, and their rounding errors."""

    def __init__(self, weight: np.ndarray):
        self.weight = weight
        self.count = 0
        self.increment = np.zeros((1, 1))
        self.power = np.zeros((1, 1))

    def add(self, now: np.ndarray, then: np.ndarray) -> None:
        self.count += len(now)
        self.increment = self.increment + (np.abs(then - now) ** 2).sum(0)
        self.power = self.power + (np.abs(then) ** 2).sum(0)

    def score(self, error: np.ndarray) -> float:
        """The logarithm of an error `(channels, modes)` relative to the increment: the mean of that of the
        whole field and that of the average mode. Modes that hold rounding errors only do not count."""
        increment, power = self.increment / self.count, self.power / self.count
        floor = ROUNDING * power.max(axis=1, keepdims=True)
        error, scale = error + floor, increment + floor
        alive = increment > 10 * floor
        if not alive.any():
            return float(np.log(error.sum() / scale.sum()))
        weight = np.broadcast_to(self.weight, error.shape)
        whole = np.log((weight * error)[alive].sum() / (weight * scale)[alive].sum())
        return float(0.5 * whole + 0.5 * np.log(error / scale)[alive].mean())


class Search:
    """Sets of products by their scores in the first regression, which are remembered."""

    def __init__(self, regression: PairRegression, *, forcing: bool):
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
        n = self.regression.num_candidates
        if len(kept) == 1 and n * (n - 1) // 2 <= _ALL_PAIRS:
            return min(itertools.combinations(range(n), 2), key=self.score)
        kept = self._with_best(kept)
        for _ in range(_EXCHANGES):
            before = self.score(kept)
            for out in kept:
                trial = self._with_best(tuple(j for j in kept if j != out))
                kept = min(kept, trial, key=self.score)
            if self.score(kept) > before - 1e-3:
                break
        return kept

    def shortlist(self, size: int) -> list[tuple[int, ...]]:
        """The best sets of this size met so far."""
        met = sorted((score, kept) for kept, score in self.scores.items() if len(kept) == size)
        return [kept for _, kept in met[:_SHORTLIST]]

    def _with_best(self, kept: tuple[int, ...]) -> tuple[int, ...]:
        others = [j for j in range(self.regression.num_candidates) if j not in kept]
        return min(((*kept, j) for j in others), key=self.score)


def host_products(v: np.ndarray, D: np.ndarray, terms: Terms, grid: Grid) -> np.ndarray:
    """All products side by side, `(batch, terms, *modes)`; on the host, since candidates come and go and each
    would have to be compiled."""
    found = products(v, list(D), terms, grid.points)
    return np.stack(found, axis=1) if found else v[:, :0]


def _cutoff(pairs: SplitPairs, grid: Grid, names: tuple[Names, ...], *, forcing: bool) -> tuple[int, ...]:
    """Two thirds of Nyquist, unless one half, or all below Nyquist, explains the data clearly better."""
    half = tuple(max(1, n // 4 - 1) for n in grid.points)
    whole = tuple((n - 1) // 2 for n in grid.points)
    best, best_score = two_thirds(grid.points), np.inf
    for cutoff in (best, half, whole):
        score = PairRegression(pairs, grid, names, cutoff).score(range(len(names)), forcing=forcing)
        if score < best_score - _TIE:
            best, best_score = cutoff, score
    return best


def _flat(v: np.ndarray, grid: Grid) -> np.ndarray:
    return v.reshape(*v.shape[: -grid.num_spatial_dims], -1)
