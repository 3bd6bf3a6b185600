"""The search for the terms of an equation, from screening to the final coefficients."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from sgno.identify.equation.data import Data
from sgno.identify.equation.discovery import Discovery
from sgno.identify.equation.flow import advance
from sgno.identify.equation.shooting import Shooting
from sgno.identify.equation.terms import Equation, Factor, Group, LearnedField, Term, changes_mean
from sgno.identify.equation.weak import WeakForm, solve, stepwise

# A term enters only if it lowers the held-out error by the first factor, and leaves if the error grows by
# less than the second: errors of chaotic rollouts scatter by about a fifth from one trajectory to the next.
WORTH_ADDING = 0.7
MAY_LEAVE = 1.1
# An equation is found if held-out forecasts are better than this, and than half the error of persistence;
# with noise, if its misfit is below this many standard deviations. Chosen on the wild suite.
_FORECASTS = 0.1
# Or if the first frames of held-out forecasts are ten times better than that, and than persistence.
_NEAR = 12
_EXPLAINED = 1.2
# Terms that make up less than this fraction of a channel's rate of change cannot be told from rounding.
NEGLIGIBLE = 1e-5


class Search:
    """The steps from screening to the final coefficients."""

    def __init__(
        self,
        data: Data,
        terms: Sequence[Term],
        names: tuple[str, ...],
        *,
        fixed: bool,
        log: Callable[[str], None],
        group: Group | None = None,
        group_size: int = 0,
    ):
        """The last `group_size` terms are the members of `group`, which a learned field multiplies."""
        self.everything, self.terms, self.names, self.fixed, self.log = data, list(terms), names, fixed, log
        self.group = group
        self.in_group = np.arange(len(terms)) >= len(terms) - group_size
        samples = len(data.v)
        if samples > 1:
            held = max(1, samples // 5)
            self.data, self.held_out = data.take(range(held, samples)), data.take(range(held))
        else:
            cut = data.frames - max(min(4, data.frames // 2 - 1), data.frames // 5)
            self.data, self.held_out = (
                data.take([0], slice(0, cut)),
                data.take([0], slice(cut - 1, data.frames)),
            )

    def run(self) -> np.ndarray:
        """The coefficients of the library, zero for terms that are not in the equation."""
        c = self.start()
        return self.noisy(c) if self.data.noisy else self.clean(c)

    def start(self) -> np.ndarray:
        """Coefficients by the weak form, from the length of windows that predicts best."""
        best, found = math.inf, np.zeros(len(self.terms))
        for window in [w for w in (6, 12, 24) if w < self.data.frames] or [self.data.frames - 1]:
            weak = WeakForm(self.data, self.terms, window=window)
            c = weak.fit(range(len(self.terms))) if self.fixed else self.well_posed(weak.select())
            shooting = Shooting(self.data, self.terms, window=2, free=False, most=100)
            shooting.substeps = shooting.choose_substeps(c)
            misfit = float(np.median(shooting.residual(c, shooting.states)))
            self.log(f"weak form over {window} frames: {np.count_nonzero(c)} terms, misfit {misfit:.3g}")
            if misfit < best:
                best, found = misfit, c
        return found

    def noisy(self, c: np.ndarray) -> np.ndarray:
        """Windows longer and longer, the terms chosen anew in each by the information criterion."""
        last, previous = self.data.frames - 1, None
        for window in [w for w in (4, 12) if 2 * w <= last] + [last]:
            most = None if window == last else max(20, 600 // window)
            shooting = Shooting(self.data, self.terms, window=window, most=most)
            if previous is not None:
                shooting.take_states(previous)
            c = shooting.refine(c, iterations=5)
            for _ in range(0 if self.fixed else 3):
                new = self.reselect(shooting, c)
                self.log(
                    f"window {window}: terms {np.flatnonzero(c).tolist()} -> {np.flatnonzero(new).tolist()}"
                )
                if np.array_equal(new != 0, c != 0):
                    break
                c = shooting.refine(new, iterations=4)
            previous = shooting
        return c

    def clean(self, c: np.ndarray) -> np.ndarray:
        """Without noise an information criterion would fit the solver's errors: held-out rollouts decide."""
        last = self.data.frames - 1
        for window in [w for w in (1, 4, 12) if w <= last]:
            shooting = Shooting(self.data, self.terms, window=window, most=max(20, 400 // (window + 1)))
            c = shooting.refine(c, iterations=8)
            if not self.fixed and (self.shares(c)[c != 0] < NEGLIGIBLE).any():
                c = shooting.refine(np.where(self.shares(c) < NEGLIGIBLE, 0, c), iterations=4)
            self.log(
                f"window {window}: terms {np.flatnonzero(c).tolist()}, held-out error {self.error(c):.3g}"
            )
            for _ in range(0 if self.fixed or window != min(4, last) else 3):
                new = self.prune(shooting, shooting.refine(self.reselect(shooting, c), iterations=3))
                now, then = self.error(c), self.error(new)
                self.log(
                    f"  {np.flatnonzero(c).tolist()} {now:.3g} -> {np.flatnonzero(new).tolist()} {then:.3g}"
                )
                fewer = np.count_nonzero(new) < np.count_nonzero(c)
                if (
                    np.array_equal(new != 0, c != 0)
                    or not then < (MAY_LEAVE if fewer else WORTH_ADDING) * now
                ):
                    break
                c = new
        return c

    def reselect(self, shooting: Shooting, c: np.ndarray) -> np.ndarray:
        """Which terms, by the information criterion in the frame of the present fit."""
        shooting.reweight(c)
        normal, _ = shooting.normal(c, range(len(self.terms)))
        if not np.isfinite(normal.gram).all():
            return c
        chosen = stepwise(
            normal.gram,
            normal.moment,
            normal.total,
            rows=normal.rows,
            variance=max(1.0, normal.chi2 / normal.rows),
            start=np.flatnonzero(c).tolist(),
            limit=16,
        )
        return self.well_posed(solve(normal.gram, normal.moment, chosen))

    def prune(self, shooting: Shooting, c: np.ndarray) -> np.ndarray:
        """Drop the terms that held-out rollouts do not miss, the least significant first."""
        support = np.flatnonzero(c)
        shooting.reweight(c)
        normal, _ = shooting.normal(c, support.tolist())
        share = self.shares(c)[support]
        kept = [i for i in range(len(support)) if share[i] > NEGLIGIBLE]
        best = self.error(c)

        def reduced(subset):
            out = np.zeros_like(c)
            out[support[subset]] = solve(normal.gram, normal.moment, subset)[subset]
            return out

        while len(kept) > 1:
            values = solve(normal.gram, normal.moment, kept)[kept]
            spread = np.sqrt(np.abs(np.diag(np.linalg.pinv(normal.gram[np.ix_(kept, kept)]))))
            for i in np.argsort(np.abs(values) / np.maximum(spread, 1e-300))[:4]:
                rest = [k for n, k in enumerate(kept) if n != i]
                error = self.error(reduced(rest))
                if error < MAY_LEAVE * best:
                    kept, best = rest, min(best, error)
                    break
            else:
                break
        return shooting.refine(reduced(kept), iterations=3)

    def shares(self, c: np.ndarray) -> np.ndarray:
        """Root mean square of each term relative to that of its channel's largest term."""
        shooting = Shooting(self.data, self.terms, window=1, free=False, most=50)
        f = shooting.system.features(
            shooting.states, shooting.sample, shooting.start, 0.0, range(len(self.terms))
        )
        power = (np.abs(f) ** 2 * self.data.box.multiplicity).sum(tuple(range(2, f.ndim))).mean(0)
        size = np.abs(c) * np.sqrt(power)
        largest = np.zeros(self.data.channels)
        targets = np.array([t.target for t in self.terms])
        np.maximum.at(largest, targets, size)
        return size / np.maximum(largest[targets], 1e-300)

    def growth(self, c: np.ndarray) -> float:
        """The growth of the finer half of the modes over a trajectory, as an exponent."""
        shooting = Shooting(self.data, self.terms, window=1, free=False, most=1)
        box = self.data.box
        fine = np.zeros(box.modes, bool)
        for number, n in zip(box.numbers(), box.points, strict=True):
            fine |= 4 * np.abs(number) >= n
        generator = np.moveaxis(shooting.system.generator(c, np.arange(len(self.data.v))), (1, 2), (-2, -1))
        rates = np.linalg.eigvals(generator[:, fine & box.inner()]).real
        return float((rates.max(tuple(range(1, rates.ndim)), initial=0) * self.data.dt.sum(1)).max())

    def well_posed(self, c: np.ndarray) -> np.ndarray:
        """Leave out linear terms that make the finest modes grow, the highest derivatives first."""
        c = c.copy()
        order = lambda j: sum(self.terms[j].outer) + sum(sum(f.order) for f in self.terms[j].factors)
        linear = [j for j in np.flatnonzero(c) if self.terms[j].degree == 1]
        for j in sorted(linear, key=order, reverse=True):
            if self.growth(c) < 1:
                break
            trial = c.copy()
            trial[j] = 0
            if self.growth(trial) < self.growth(c):
                c = trial
        return c

    def error(self, c: np.ndarray, frames: int | None = None) -> float:
        """Closed-loop error on the held-out part: geometric mean over frames of the relative error."""
        errors = rollout_errors(self.held_out, self.terms, c)[:frames]
        return (
            float(np.exp(np.log(np.maximum(errors, 1e-30)).mean())) if np.isfinite(errors).all() else math.inf
        )

    def conclude(self, c: np.ndarray) -> Discovery:
        """The final coefficients from all trajectories, their covariance, and what held-out data say."""
        data, support = self.everything, np.flatnonzero(c).tolist()
        notes = []
        held_out, persistence, misfit = self.error(c), self.error(0 * c), None
        if data.noisy and data.box.dims == 1:
            misfit = self.misfit(c)
            found = misfit < _EXPLAINED
            if not found:
                notes.append(
                    "The held-out data are not explained to the level of their noise: a term is missing, or "
                    "the noise is not independent from point to point."
                )
        else:
            # Of the right equation too, long forecasts fail where the dynamics are chaotic.
            near, near_persistence = self.error(c, _NEAR), self.error(0 * c, _NEAR)
            found = held_out < min(_FORECASTS, 0.5 * persistence) or near < 0.1 * min(
                _FORECASTS, near_persistence
            )
            if not found:
                notes.append(
                    f"Held-out forecasts have an error of {held_out:.2g} (persistence {persistence:.2g}): "
                    "give more or closer frames, or an input that is missing."
                )
        if not support:
            found = False
            notes.append("No term of the library explains any change of the data.")
        window = data.frames - 1 if data.noisy else 12
        shooting = Shooting(data, self.terms, window=window, most=None if data.noisy else 60)
        final = shooting.refine(c, iterations=3) if support else c
        c = final if np.isfinite(final).all() and np.isfinite(shooting.chi2(final, shooting.states)) else c
        shooting.reweight(c)
        normal, _ = shooting.normal(c, range(len(self.terms)))
        variance = max(1.0, normal.chi2 / normal.rows)
        spread, rejected = np.zeros(len(c)), []
        if np.isfinite(normal.gram).all():
            own = np.linalg.pinv(normal.gram[np.ix_(support, support)], hermitian=True)
            spread[support] = np.sqrt(variance * np.maximum(np.diag(own), 0))
            for j in range(len(c)):
                if c[j] == 0 and normal.gram[j, j] > 0:
                    both = [*support, j]
                    value = solve(normal.gram, normal.moment, both)[j]
                    error = math.sqrt(
                        max(variance * np.linalg.pinv(normal.gram[np.ix_(both, both)])[-1, -1], 1e-300)
                    )
                    rejected.append((self.terms[j], abs(value) / error))
        if not any(self.terms[j].degree > 1 for j in support):
            notes.append("The equation is linear: no product of states is supported by the data.")
        step = float(data.dt.max()) / self.accurate_substeps(c)
        equation = self.equation(c, spread, step)
        noise = tuple(float(n) if data.noisy else 0.0 for n in data.noise)
        return Discovery(
            equation,
            tuple(sorted(rejected, key=lambda r: -r[1])),
            float(np.median(data.dt)),
            noise,
            held_out,
            persistence,
            misfit,
            bool(found),
            tuple(notes),
        )

    def equation(self, c: np.ndarray, spread: np.ndarray, step: float) -> Equation:
        """The terms that are not zero, those of the group as one term with its field."""
        alone = [int(j) for j in np.flatnonzero(np.where(self.in_group, 0, c))]
        terms, values = [self.terms[j] for j in alone], [float(c[j]) for j in alone]
        errors, fields = [float(spread[j]) for j in alone], ()
        if self.group is not None:
            taken = (*self.names, *self.data.inputs.arrays)
            name = next(n for n in "abcdefghijklmnop" if n not in taken)
            mean, *rest = map(float, c[self.in_group])
            fields = (LearnedField(name, (mean, *rest[::2]), (0.0, *rest[1::2])),)
            group = self.group
            terms.append(Term(group.target, group.outer, (Factor(name, (0,)), *group.factors)))
            # The size is in the field.
            values.append(1.0)
            errors.append(0.0)
        return Equation(
            tuple(terms),
            tuple(values),
            self.names,
            self.data.box.lengths,
            step,
            tuple(errors),
            fields,
            self.data.box.conserves_mean and any(map(changes_mean, terms)),
        )

    def accurate_substeps(self, c: np.ndarray) -> int:
        shooting = Shooting(self.everything, self.terms, window=1, free=False, most=8)
        return shooting.choose_substeps(c, exact=True)

    def misfit(self, c: np.ndarray) -> float:
        """Of held-out trajectories, their initial states fitted, in standard deviations of the noise."""
        shooting = Shooting(self.held_out, self.terms, window=self.held_out.frames - 1)
        states = shooting.fit_states(c)
        rows = len(shooting.sample) * (shooting.window + 1) * len(shooting.prior)
        return math.sqrt(shooting.chi2(c, states) / rows)


def rollout_errors(data: Data, terms: Sequence[Term], c: np.ndarray) -> np.ndarray:
    """Relative error of rollouts from the first frame, mean over trajectories, at each later frame."""
    kept = np.flatnonzero(c)
    shooting = Shooting(data, [terms[int(j)] for j in kept], window=data.frames - 1, free=False)
    c = np.asarray(c, float)[kept]
    substeps = shooting.choose_substeps(c)
    tables, index = shooting.tables(c, substeps)
    v, samples = shooting.states, np.arange(len(data.v))
    norm = lambda x: np.sqrt((np.abs(x) ** 2 * data.box.multiplicity).reshape(len(x), -1).sum(1))
    errors = []
    for f in range(data.frames - 1):
        frame = np.full(len(v), f)
        v, _ = advance(
            shooting.system, c, tables.take(index[:, f]), v, samples=samples, frame=frame, substeps=substeps
        )
        with np.errstate(over="ignore", invalid="ignore"):
            errors.append(np.mean(norm(v - data.v[:, f + 1]) / np.maximum(norm(data.v[:, f + 1]), 1e-300)))
    return np.array(errors)
