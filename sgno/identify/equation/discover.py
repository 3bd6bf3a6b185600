"""From trajectories to the equation behind them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.identify.equation.data import Data
from sgno.identify.equation.flow import Box, Inputs, advance
from sgno.identify.equation.shooting import Shooting
from sgno.identify.equation.simulate import as_inputs
from sgno.identify.equation.step import EquationConfig, EquationStep
from sgno.identify.equation.terms import Equation, Term, candidates, channel_names, lengths_of, readable
from sgno.identify.equation.weak import WeakForm, solve, stepwise

# A term enters only if it lowers the held-out error by the first factor, and leaves if the error grows by
# less than the second: errors of chaotic rollouts scatter by about a fifth from one trajectory to the next.
_WORTH_ADDING = 0.7
_MAY_LEAVE = 1.1
# An equation is found if held-out forecasts are better than this, and than half the error of persistence;
# with noise, if its misfit is below this many standard deviations. Chosen on the wild suite.
_FORECASTS = 0.1
_EXPLAINED = 1.2
# Terms that make up less than this fraction of a channel's rate of change cannot be told from rounding.
_NEGLIGIBLE = 1e-5


@dataclass(frozen=True)
class Discovery:
    """An equation and how sure of it the data are.

    - `rejected`: terms of the library that were left out, with the standard deviations by which the final fit
      would move them away from zero; the most tempting first.
    - `dt`: the time between two frames, the median if it varies.
    - `noise`: estimated standard deviation of the noise of each channel, 0 if there is none to speak of.
    - `held_out`: closed-loop relative error on trajectories that the search did not fit, geometric mean over
      frames. With noisy data it includes the noise of the first and of every later frame.
    - `persistence`: the same error of the forecast that nothing changes.
    - `misfit`: for noisy data, that of held-out trajectories from fitted initial states, in standard
      deviations of the noise: 1 is perfect.
    - `found`: whether the held-out data support the equation.
    - `notes`: what a user should know, one line each.
    """

    equation: Equation
    rejected: tuple[tuple[Term, float], ...]
    dt: float
    noise: tuple[float, ...]
    held_out: float
    persistence: float
    misfit: float | None
    found: bool
    notes: tuple[str, ...]

    def intervals(self, deviations: float = 1.96) -> list[tuple[float, float]]:
        """An interval for each coefficient, by default of 95 %."""
        pairs = zip(self.equation.coefficients, self.equation.standard_errors, strict=True)
        return [(c - deviations * e, c + deviations * e) for c, e in pairs]

    @property
    def forecast(self) -> Equation:
        """The equation to forecast with: the best candidate, or u_t = 0 if it does worse than persistence."""
        if self.found or self.held_out < self.persistence:
            return self.equation
        return replace(self.equation, terms=(), coefficients=(), standard_errors=())

    def step(self, grid: Grid) -> EquationStep:
        """The step of `forecast` from one frame of the data to the next; another dt by `at`."""
        equation = self.forecast
        about = {"found": self.found, "held_out": self.held_out, "notes": self.notes}
        return EquationConfig(self.dt, equation.lengths, equation, **about).build(grid)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with the equation in words, LaTeX and as SymPy reads it."""
        equation = self.equation
        rows = []
        for term, value, error in zip(
            equation.terms, equation.coefficients, equation.standard_errors, strict=True
        ):
            shown, scaled = readable(term, value)
            width = 1.96 * error * (abs(scaled / value) if value else 1.0)
            rows.append((shown, scaled, (scaled - width, scaled + width)))
        plain = lambda x: x if x is not None and math.isfinite(x) else None
        return {
            "found": self.found,
            "equation": str(equation).splitlines(),
            "latex": equation.latex(),
            "sympy": equation.sympy(),
            "terms": [
                {
                    "channel": equation.channels[term.target],
                    "term": equation.name_of(term),
                    **asdict(term),
                    "coefficient": value,
                    "interval": list(interval),
                }
                for term, value, interval in rows
            ],
            "rejected": [
                {"term": equation.name_of(term), "deviations": plain(size)} for term, size in self.rejected
            ],
            "dt": self.dt,
            "lengths": list(equation.lengths),
            "max_step": equation.max_step,
            "noise": list(self.noise),
            "held_out": plain(self.held_out),
            "persistence": plain(self.persistence),
            "misfit": plain(self.misfit),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        equation = str(self.equation)
        lines = [equation if self.found else f"Not found. The best candidate:\n{equation}"]
        lines += [f"  {line}" for line in self.equation.details()]
        lines.append(f"  held-out error {self.held_out:.3g} (persistence {self.persistence:.3g})")
        if self.misfit is not None:
            lines.append(f"  held-out misfit {self.misfit:.3g} standard deviations of the noise")
        return "\n".join([*lines, *(f"  {n}" for n in self.notes)])


def discover(
    u: np.ndarray | Sequence[np.ndarray],
    *,
    dt: float | np.ndarray,
    length: float | Sequence[float],
    inputs: Mapping[str, np.ndarray] | None = None,
    holds: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    terms: Sequence[Term] | None = None,
    only: Sequence[Term] | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Discovery:
    """Find the PDE behind trajectories on a periodic box, with an interval for each coefficient.

    **Arguments:**

    - `u`: `(samples, frames, C, *points)`, or a list of `(frames, C, *points)` of different lengths.
    - `dt`: the time between frames: a number, one for each sample, or `(samples, frames - 1)`.
    - `length`: of the box, a number or one for each axis.
    - `inputs`: known inputs by name: `(samples,)` parameters, `(*points)` or `(samples, *points)` fields,
      `(samples, frames)` and `(samples, frames, *points)` controls.
    - `holds`: inputs that keep the value of a frame until the next one; others are linear in between.
    - `channels`: names of the channels, by default `u, v, w` or `u0, u1, ...`.
    - `terms`: the library of candidates, by default `candidates`.
    - `only`: the terms of the equation, if they are known: then only their coefficients are found.

    **Raises:** `InputError` for arrays that do not fit together, or too few frames.
    """
    states, steps = _trajectories(u, dt)
    samples, frames, count = states.shape[:3]
    points = states.shape[3:]
    box = Box(points, lengths_of(length, len(points)))
    known = Inputs(as_inputs(inputs or {}, samples, frames, points), box, frozenset(holds))
    data = Data.make(states, steps, box, known)
    fields = [n for n in known.arrays if n not in known.parameters and known.arrays[n].shape[2:] == points]
    scalars = [n for n in known.arrays if n not in fields]
    library = list(only or terms or candidates(count, len(points), parameters=scalars, fields=fields))
    names = tuple(channels or channel_names(count))
    if len(names) != count:
        raise InputError(
            f"channels={','.join(names)} are {len(names)} names, but there are {count} channels."
        )
    return _Search(data, library, names, fixed=only is not None, log=log).run()


class _Search:
    """The steps from screening to the final coefficients."""

    def __init__(self, data: Data, terms: Sequence[Term], names: tuple[str, ...], *, fixed: bool, log):
        self.everything, self.terms, self.names, self.fixed, self.log = data, list(terms), names, fixed, log
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

    def run(self) -> Discovery:
        c = self.start()
        c = self.noisy(c) if self.data.noisy else self.clean(c)
        return self.conclude(c)

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
            if not self.fixed and (self.shares(c)[c != 0] < _NEGLIGIBLE).any():
                c = shooting.refine(np.where(self.shares(c) < _NEGLIGIBLE, 0, c), iterations=4)
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
                    or not then < (_MAY_LEAVE if fewer else _WORTH_ADDING) * now
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
        kept = [i for i in range(len(support)) if share[i] > _NEGLIGIBLE]
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
                if error < _MAY_LEAVE * best:
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

    def error(self, c: np.ndarray) -> float:
        """Closed-loop error on the held-out part: geometric mean over frames of the relative error."""
        errors = rollout_errors(self.held_out, self.terms, c)
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
            found = held_out < min(_FORECASTS, 0.5 * persistence)
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
        equation = Equation(
            tuple(self.terms[j] for j in support),
            tuple(float(c[j]) for j in support),
            self.names,
            data.box.lengths,
            step,
            tuple(spread[support].tolist()),
        )
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


def _trajectories(u, dt) -> tuple[np.ndarray, np.ndarray]:
    """States `(samples, frames, C, *points)` and steps `(samples, frames - 1)`.

    Trajectories of different length are cut into pieces as long as the shortest.
    """
    pieces = [np.asarray(t) for t in u]
    if not pieces or pieces[0].ndim < 3:
        raise InputError(
            "Expected trajectories (samples, frames, channels, *points) with at least one point axis."
        )
    if len({p.shape[1:] for p in pieces}) > 1:
        raise InputError("Trajectories must share their channels and points. Resample them to one grid.")
    if not all(np.isfinite(p).all() for p in pieces):
        raise InputError("The trajectories contain NaN or infinity. Leave out the frames that do.")
    frames = min(len(p) for p in pieces)
    needed = 3 if len(pieces) > 1 else 4
    if frames < needed:
        raise InputError(
            f"{len(pieces)} trajectories of {frames} frames or more, but an equation needs {needed} frames."
        )
    given = np.asarray(dt, float)
    if given.ndim > 2 or (given.ndim and len(given) != len(pieces)) or not (given > 0).all():
        raise InputError(
            f"dt has the shape {given.shape}: give a positive number, (samples,) or (samples, frames - 1)."
        )
    states, steps = [], []
    for i, p in enumerate(pieces):
        own = np.broadcast_to(given if given.ndim == 0 else given[i], (len(p) - 1,))
        for first in sorted({*range(0, len(p) - frames + 1, frames - 1), len(p) - frames}):
            states.append(p[first : first + frames])
            steps.append(own[first : first + frames - 1])
    return np.stack(states), np.stack(steps)
