"""How much of a step a set of products explains: two regressions, judged on held-out pairs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgno.grid import Grid
from sgno.identify.regression import ROUNDING, Gram
from sgno.sgno_x.closure import Terms
from sgno.spectral import multiplicity, to_modes, to_points

_GRAM_BYTES = 64 * 2**20
_MAX_MODES = 512
_BLOCK_NUMBERS = 2**21
_STAGE_ITERATIONS = 6

Names = tuple[str, ...]


class Pairs(NamedTuple):
    """Neighbouring states, `(pairs, channels, *points)` each; the first so many are for fitting."""

    now: np.ndarray
    then: np.ndarray
    fitting: int

    def part(self, *, held: bool, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The pairs to fit, or those held out; at most so many."""
        part = slice(self.fitting, None) if held else slice(0, self.fitting)
        return self.now[part][:most], self.then[part][:most]

    def slower(self) -> "Pairs":
        """The half of either part that changes least: where one product says most about the step."""
        change = ((self.then - self.now) ** 2).reshape(len(self.now), -1).sum(1)
        fitting, held = np.argsort(change[: self.fitting]), np.argsort(change[self.fitting :])
        fitting, held = (order[: -(-len(order) // 2)] for order in (fitting, held))
        # In their old order, which is a random one.
        kept = np.concatenate([np.sort(fitting), self.fitting + np.sort(held)])
        return Pairs(self.now[kept], self.then[kept], len(fitting))


class BothEnds:
    """The next state regressed on the state, the products at both ends of the step, and a constant:

        v+ = g v + sum_j (p_0j q_j(v) + p_1j q_j(v+)) + c,   every coefficient free for each mode.

    Products at both ends stand for their mean over the step: one end alone would leave most of a large step
    unexplained whatever the product. All candidates share one set of normal equations, on a sample of modes.
    """

    def __init__(self, pairs: Pairs, grid: Grid, candidates: Sequence[Names], cutoff: tuple[int, ...]):
        self.channels, self.num = grid.channels, len(candidates)
        columns = self.channels + 2 * self.num + 1
        weight = multiplicity(grid.points).reshape(-1)
        most = max(16, min(_MAX_MODES, _GRAM_BYTES // (16 * grid.channels * columns**2)))
        self.chosen = _spread(weight.size, most)
        self.fit, self.held, self.scale = Gram(), Gram(), Scale(weight[self.chosen])
        terms = Terms(candidates)
        D = terms.start(grid.points, cutoff).astype(np.complex64) if self.num else None
        for held, gram in ((False, self.fit), (True, self.held)):
            for now, then in blocks(*pairs.part(held=held), columns):
                v, v_then = (modes(u) for u in (now, then))
                x = [v]
                if D is not None:
                    x += [host_products(w, D, terms, grid.points) for w in (v, v_then)]
                x.append(np.ones_like(v[:, :1]))
                x = np.concatenate([_flat(a, grid)[..., self.chosen] for a in x], axis=1)
                y = _flat(v_then, grid)[..., self.chosen]
                gram.add(np.repeat(x[:, None], self.channels, axis=1), y)
                if held:
                    self.scale.add(x[:, : self.channels], y)

    def score(self, terms: Sequence[int], *, forcing: bool) -> float:
        C = self.channels
        constant = [C + 2 * self.num] if forcing else []
        columns = np.array(
            [*range(C), *(C + j for j in terms), *(C + self.num + j for j in terms), *constant]
        )
        return self.scale.score(self.held.error(self.fit.solve(columns), columns))


def two_stage_score(
    pairs: Pairs, grid: Grid, names: Sequence[Names], cutoff: tuple[int, ...], *, forcing: bool, most: int
) -> float:
    """The score of the two-stage step with free coefficients for each mode and product,

        a = g v + sum_j P_j q_j(v) + f,    v+ = a + sum_j Q_j (q_j(a) - q_j(v)),

    found by least squares with `a` from the coefficients of the iteration before. Far sharper than
    `BothEnds` where the step is one of this form, and dearer: products of `a` are new each time.
    """
    C, J, terms = grid.channels, len(names), Terms(names)
    D = terms.start(grid.points, cutoff).astype(np.complex64)
    states = []
    for held in (False, True):
        now, then = (modes(u) for u in pairs.part(held=held, most=most))
        q = np.concatenate([host_products(v, D, terms, grid.points) for v in np.array_split(now, 4)])
        x = [now, q, np.ones_like(now[:, :1])] if forcing else [now, q]
        states.append((now, q, np.concatenate(x, axis=1), then))
    scale = Scale(multiplicity(grid.points).reshape(-1))
    scale.add(*(_flat(states[1][i], grid) for i in (0, 3)))
    P: np.ndarray | None = None
    best = np.inf
    for _ in range(_STAGE_ITERATIONS):
        grams = []
        for _, q, x, then in states:
            if P is not None:
                a = sum(P[:, i] * x[:, i, None] for i in range(x.shape[1]))
                q_a = host_products(np.asarray(a).astype(np.complex64), D, terms, grid.points)
                x = np.concatenate([x, q_a - q], axis=1)
            else:
                x = np.concatenate([x, host_products(then, D, terms, grid.points) - q], axis=1)
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


class Scale:
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


def modes(u: np.ndarray) -> np.ndarray:
    """Amplitudes of `(batch, channels, *points)`, on the host."""
    return np.asarray(to_modes(u.astype(np.float32), u.shape[2:]))


def host_products(v: np.ndarray, D: np.ndarray, terms: Terms, points: tuple[int, ...]) -> np.ndarray:
    """`products`, on the host: candidates come and go, and each would have to be compiled."""
    fields = [to_points(D[i] * v[:, c : c + 1], points) for i, c in enumerate(terms.channels)]
    columns = []
    for term in terms.products:
        q = fields[term[0]]
        for factor in term[1:]:
            q = q * fields[factor]
        columns.append(to_modes(q, points))
    return np.concatenate(columns, axis=1)


def blocks(now: np.ndarray, then: np.ndarray, numbers: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of pairs so small that `numbers` fields of each state fit in memory; float32."""
    size = max(1, _BLOCK_NUMBERS // (numbers * int(np.prod(now.shape[2:]))))
    for i in range(0, len(now), size):
        yield now[i : i + size].astype(np.float32), then[i : i + size].astype(np.float32)


def _flat(v: np.ndarray, grid: Grid) -> np.ndarray:
    return v.reshape(*v.shape[: -grid.num_spatial_dims], -1)


def _spread(count: int, most: int) -> np.ndarray:
    """At most so many modes of all, drawn once and for all evenly at random."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))
