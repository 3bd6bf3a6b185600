"""Refinement by multiple shooting: Gauss-Newton over coefficients and the initial states of all windows.

A window starts from a state of its own and follows the flow over several frames; its residuals are the
differences to the data in standard deviations of the noise. The initial states are eliminated (a Schur
complement for each window), which leaves normal equations for the coefficients, those of terms that are not
in the equation included. The same matrices give the step, the covariance, and what any other term would gain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sgno.identify.equation.data import Data
from sgno.identify.equation.flow import System, Tables, advance
from sgno.identify.equation.terms import Term
from sgno.identify.equation.weak import solve

_CHUNK = 150_000


@dataclass
class Normal:
    """The regression near the present coefficients: `chi2(c) = c' gram c - 2 moment' c + total`."""

    gram: np.ndarray
    moment: np.ndarray
    total: float
    chi2: float
    rows: float


class Shooting:
    """Windows of a data set for a library of candidate terms.

    **Arguments:**

    - `window`: frames that a window follows the flow.
    - `free`: whether every window has an initial state of its own to find; otherwise it starts from the data.
      Default: if the data are noisy, in 1D. In more dimensions a state has too many amplitudes for that.
    - `most`: at most this many windows, evenly spread.
    """

    def __init__(
        self,
        data: Data,
        terms: Sequence[Term],
        *,
        window: int,
        free: bool | None = None,
        most: int | None = None,
    ):
        self.data = data
        self.system = System(terms, data.box, data.channels, data.inputs)
        self.window = min(window, data.frames - 1)
        self.free = data.noisy and data.box.dims == 1 if free is None else free
        starts = np.arange(0, data.frames - self.window, self.window)
        samples = len(data.v)
        self.sample, self.start = np.repeat(np.arange(samples), len(starts)), np.tile(starts, samples)
        if most is not None and len(self.start) > most:
            some = np.unique(np.linspace(0, len(self.start) - 1, most).round().astype(int))
            self.sample, self.start = self.sample[some], self.start[some]
        self.states = (data.smoothed() if data.noisy else data.v)[self.sample, self.start]
        self.keep = data.keep if data.noisy else np.broadcast_to(data.box.inner(), data.keep.shape)
        self.index = np.nonzero(self.keep)
        self.scale = data.scale[self.index]
        self.has_imaginary = np.any([i != 0 for i in self.index[1:]], axis=0)
        # The spectrum of the data is the prior of the initial states, in units of the noise.
        power = data.signal[self.index] * self.scale**2 / np.where(self.has_imaginary, 2, 1)
        prior = 1 / np.maximum(power, 1e-12)
        self.prior = np.concatenate([prior, prior[self.has_imaginary]])
        self.substeps = 1
        # Without free states the misfit of a window is not noise but what the grid does not resolve, so a
        # window counts by its own residual (`reweight`).
        self.weight = np.ones(len(self.sample))

    def take_states(self, other: "Shooting") -> None:
        """Start from the states that other windows have found, where they begin at the same frames."""
        known = {
            key: i for i, key in enumerate(zip(other.sample.tolist(), other.start.tolist(), strict=True))
        }
        for i, key in enumerate(zip(self.sample.tolist(), self.start.tolist(), strict=True)):
            if self.free and other.free and key in known:
                self.states[i] = other.states[known[key]]

    def real(self, x: np.ndarray) -> np.ndarray:
        """Amplitudes `(..., C, *modes)` as real vectors in units of the noise."""
        with np.errstate(over="ignore", invalid="ignore"):
            x = x[(..., *self.index)] * self.scale
        return np.concatenate([np.real(x), np.imag(x)[..., self.has_imaginary]], -1)

    def amplitudes(self, r: np.ndarray) -> np.ndarray:
        n = len(self.scale)
        x = r[..., :n].astype(complex)
        x[..., self.has_imaginary] += 1j * r[..., n:]
        out = np.zeros((*r.shape[:-1], *self.keep.shape), complex)
        out[(..., *self.index)] = x / self.scale
        return out

    def tables(self, coefficients: np.ndarray, substeps: int) -> tuple[Tables, np.ndarray]:
        """A table for every distinct (parameters, dt), and which one each trajectory uses at each frame."""
        data = self.data
        samples, gaps = data.dt.shape
        names = [n for n in data.inputs.parameters if data.inputs.arrays[n].shape[0] > 1]
        varied = any(f.field in names for j in self.system.linear for f in self.system.terms[j].factors)
        case = np.repeat(np.arange(samples)[:, None], gaps, 1) if varied else np.zeros((samples, gaps), int)
        rounded = np.round(data.dt / data.dt.max(), 9)
        keys, index = np.unique(np.stack([case.ravel(), rounded.ravel()]), axis=1, return_inverse=True)
        generator = self.system.generator(coefficients, keys[0].astype(int))
        h = keys[1] * data.dt.max() / substeps
        return Tables.make(generator, h), index.reshape(samples, gaps)

    def choose_substeps(self, coefficients: np.ndarray, limit: int = 64, *, exact: bool = False) -> int:
        """The fewest inner steps with an error small beside rounding and, if not `exact`, beside noise."""
        data = self.data
        some = np.linspace(0, len(self.sample) - 1, min(8, len(self.sample))).astype(int)
        # A systematic error adds up over frames and windows where noise averages out.
        tolerance = data.box.broadcast(np.maximum(0 if exact else 3e-4 * data.noise, 3e-7 * data.rms))
        previous, n = self._frame(coefficients, 1, some), 2
        while n <= limit:
            v = self._frame(coefficients, n, some)
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.abs((v - previous) / tolerance) ** 2 * data.box.multiplicity
                error = np.sqrt(squares.sum(tuple(range(2, v.ndim))).max())
            # The scheme is of order four: twice as many steps leave a sixteenth of this.
            if error < 16:
                return n if error > 1 else n // 2
            previous, n = v, 2 * n
        return limit

    def _frame(self, coefficients, substeps, some):
        tables, index = self.tables(coefficients, substeps)
        at = index[self.sample[some], self.start[some]]
        return advance(
            self.system,
            coefficients,
            tables.take(at),
            self.states[some],
            samples=self.sample[some],
            frame=self.start[some],
            substeps=substeps,
        )[0]

    def residual(self, coefficients: np.ndarray, states: np.ndarray) -> np.ndarray:
        """chi² of each window, prior included."""
        tables, index = self.tables(coefficients, self.substeps)
        v = states
        chi2 = np.zeros(len(v))
        if self.free:
            r = self.real(v - self.data.v[self.sample, self.start])
            chi2 += (r**2).sum(-1) + (self.prior * self.real(states) ** 2).sum(-1)
        for f in range(self.window):
            v, _ = advance(
                self.system,
                coefficients,
                tables.take(index[self.sample, self.start + f]),
                v,
                samples=self.sample,
                frame=self.start + f,
                substeps=self.substeps,
            )
            r = self.real(v - self.data.v[self.sample, self.start + f + 1])
            # A state that has left the range of the data by far is lost; its square might overflow.
            chi2 += np.where(np.abs(r).max(-1) < 1e100, (np.clip(r, -1e100, 1e100) ** 2).sum(-1), math.inf)
            chi2[~np.isfinite(chi2)] = math.inf
        return chi2

    def chi2(self, coefficients: np.ndarray, states: np.ndarray) -> float:
        with np.errstate(invalid="ignore"):
            return float((self.weight * self.residual(coefficients, states)).sum())

    def reweight(self, coefficients: np.ndarray) -> None:
        """Weigh every window by its own misfit."""
        if not self.free:
            rows = self.window * len(self.prior)
            self.weight = 1 / np.maximum(self.residual(coefficients, self.states) / rows, 1.0)

    def normal(self, coefficients: np.ndarray, which: Sequence[int]) -> tuple[Normal, list]:
        """Normal equations for the terms `which`, and what is needed to follow with the initial states."""
        which = list(which)
        p = len(which)
        tables, index = self.tables(coefficients, self.substeps)
        unknowns = len(self.prior) if self.free else 0
        gram, slope, chi2 = np.zeros((p, p)), np.zeros(p), 0.0
        follow = []
        per = max(1, _CHUNK // (max(1, unknowns + p) * math.prod(self.keep.shape)))
        basis = self.amplitudes(np.eye(unknowns)) if self.free else np.zeros((0, *self.keep.shape), complex)
        for first in range(0, len(self.sample), per):
            part = slice(first, min(first + per, len(self.sample)))
            sample, start, v = self.sample[part], self.start[part], self.states[part]
            b = len(sample)
            root = np.sqrt(self.weight[part])[:, None]
            tangents = np.zeros((b, unknowns + p, *self.keep.shape), np.complex64)
            tangents[:, :unknowns] = basis
            own = np.zeros((b, unknowns + p, unknowns + p))
            pull = np.zeros((b, unknowns + p))
            if self.free:
                r = self.real(v - self.data.v[sample, start])
                s = self.real(v)
                own[:, :unknowns, :unknowns] += np.eye(unknowns) + np.diag(self.prior)
                pull[:, :unknowns] += r + self.prior * s
                chi2 += (r**2).sum() + (self.prior * s**2).sum()
            for f in range(self.window):
                v, tangents = advance(
                    self.system,
                    coefficients,
                    tables.take(index[sample, start + f]),
                    v,
                    samples=sample,
                    frame=start + f,
                    substeps=self.substeps,
                    tangents=tangents,
                    which=which,
                )
                r = root * self.real(v - self.data.v[sample, start + f + 1])
                assert tangents is not None
                jacobian = root[..., None] * self.real(tangents)
                own += jacobian @ jacobian.transpose(0, 2, 1)
                pull += (jacobian @ r[..., None])[..., 0]
                chi2 += (r**2).sum()
            a, bb, c = (
                own[:, :unknowns, :unknowns],
                own[:, :unknowns, unknowns:],
                own[:, unknowns:, unknowns:],
            )
            if self.free:
                solved = np.linalg.solve(a, np.concatenate([bb, pull[:, :unknowns, None]], -1))
                gram += (c - bb.transpose(0, 2, 1) @ solved[..., :p]).sum(0)
                slope += (pull[:, unknowns:] - (bb.transpose(0, 2, 1) @ solved[..., p:])[..., 0]).sum(0)
                follow.append(solved)
                # What free initial states gain by themselves.
                chi2 -= (pull[:, :unknowns] * solved[..., p]).sum()
            else:
                gram += c.sum(0)
                slope += pull[:, unknowns:].sum(0)
        now = np.asarray(coefficients)[which]
        rows = len(self.sample) * (self.window + 1 * self.free) * len(self.prior)
        # chi2(c) = chi2 + 2 slope.(c - now) + (c - now)' gram (c - now)
        moment = gram @ now - slope
        total = float(chi2) - 2 * float(slope @ now) + float(now @ gram @ now)
        return Normal(gram, moment, total, float(chi2), float(max(rows, 1))), follow

    def moved(self, follow: list, change: np.ndarray, length: float) -> np.ndarray:
        """The initial states that belong to coefficients changed by `length * change`."""
        if not self.free:
            return self.states
        solved = np.concatenate(follow)
        step = -solved[..., -1] - solved[..., :-1] @ change
        return self.states + self.amplitudes(length * step)

    def fit_states(self, coefficients: np.ndarray, iterations: int = 6) -> np.ndarray:
        """Initial states of all windows for given coefficients, by Gauss-Newton."""
        self.substeps = self.choose_substeps(coefficients)
        value = self.chi2(coefficients, self.states)
        for _ in range(iterations):
            _, follow = self.normal(coefficients, [])
            states = self.moved(follow, np.zeros(0), 1.0)
            before, value = value, self.chi2(coefficients, states)
            if not value < before:
                break
            self.states = states
            if before - value < 1e-3 * before:
                break
        return self.states

    def refine(self, coefficients: np.ndarray, *, iterations: int = 10, tolerance: float = 0.1) -> np.ndarray:
        """Gauss-Newton on the coefficients that are not zero, with backtracking.

        It ends when a full step changes every coefficient by less than `tolerance` standard deviations.
        """
        c = np.array(coefficients, float)
        support = [j for j in range(len(c)) if c[j]]
        if not support and not self.free:
            return c
        self.substeps = self.choose_substeps(c)
        for _ in range(iterations):
            self.reweight(c)
            chi2 = self.chi2(c, self.states)
            if not math.isfinite(chi2):
                break
            normal, follow = self.normal(c, support)
            if not np.isfinite(normal.gram).all():
                break
            change = solve(normal.gram, normal.moment, range(len(support))) - c[support]
            for length in (1.0, 1 / 3, 1 / 9, 1 / 27, 1 / 81):
                trial = c.copy()
                trial[support] += length * change
                states = self.moved(follow, change, length)
                value = self.chi2(trial, states)
                if value < chi2:
                    break
            else:
                break
            c, self.states = trial, states
            deviations = np.abs(change) * np.sqrt(np.maximum(np.diag(normal.gram), 0))
            if length == 1 and (
                deviations.max(initial=0) < tolerance or chi2 - value < tolerance * 1e-3 * chi2
            ):
                break
        self.substeps = max(self.substeps, self.choose_substeps(c))
        return c
