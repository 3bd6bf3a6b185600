"""Screening in weak form: regression over windows of frames, without a derivative in time.

Against a test function `psi` that vanishes at both ends of a window,

    -int psi' v dt = sum_j c_j int psi term_j(v) dt,

for every mode of every window. Terms enter by an information criterion.
"""

import math
from collections.abc import Sequence

import numpy as np

from sgno.identify.equation.data import Data
from sgno.identify.equation.flow import System
from sgno.identify.equation.terms import Term


def stepwise(
    gram: np.ndarray,
    moment: np.ndarray,
    total: float,
    *,
    rows: float,
    variance: float | None = None,
    gain: float = 0.0,
    start: Sequence[int] = (),
    limit: int = 12,
) -> list[int]:
    """Which terms to keep: the subset that minimises `rss / variance + |subset| log(rows)`, found stepwise.

    The residual sum of squares of a subset is `total - h_S' G_SS^-1 h_S`.

    **Arguments:**

    - `gram`, `moment`, `total`: X'X, X'y, y'y of the regression.
    - `variance`: of a residual; None: that of the best fit by all terms tried so far (rows log rss).
    - `gain`: besides, a term must lower the residual by this fraction.
    """
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    g = gram / np.outer(scale, scale)
    h = moment / scale
    usable = np.diag(gram) > 1e-24 * max(total, 1e-300)

    def rss(subset):
        if not subset:
            return total
        part = g[np.ix_(subset, subset)]
        if np.linalg.eigvalsh(part)[0] < 1e-11:
            return math.inf
        return max(total - h[subset] @ np.linalg.solve(part, h[subset]), 1e-14 * total)

    def score(subset, value):
        if variance is None:
            return rows * math.log(value) + len(subset) * math.log(rows)
        return value / variance + len(subset) * math.log(rows)

    def search(chosen):
        current = rss(chosen)
        best = score(chosen, current)
        for _ in range(200):
            moves = []
            if len(chosen) < limit:
                for j in range(len(h)):
                    if usable[j] and j not in chosen:
                        value = rss([*chosen, j])
                        trial = score([*chosen, j], value)
                        if value < (1 - gain) * current and trial < best - 1e-9:
                            moves.append((trial, [*chosen, j]))
            for j in chosen:
                rest = [i for i in chosen if i != j]
                value = rss(rest)
                trial = score(rest, value)
                if (1 - gain) * value < current or trial < best - 1e-9 or len(chosen) > limit:
                    moves.append((trial - 1e12, rest))
            if not moves:
                break
            _, chosen = min(moves, key=lambda m: m[0])
            current = rss(chosen)
            best = score(chosen, current)
        return score(chosen, current) + 0.1 * rows * len(chosen) * gain, sorted(chosen)

    # Forward selection misses terms that only matter together; backward elimination keeps them.
    everything = _independent(g, np.flatnonzero(usable))
    return min((search(list(s)) for s in (start, everything)), key=lambda m: m[0])[1]


def _independent(gram: np.ndarray, columns: np.ndarray) -> list[int]:
    """Columns that can be told apart: those whose pivots in a Cholesky decomposition are not rounding."""
    chosen: list[int] = []
    for j in columns:
        if chosen:
            part = gram[np.ix_(chosen, chosen)]
            rest = 1 - gram[j, chosen] @ np.linalg.solve(part, gram[chosen, j])
            if rest < 1e-9:
                continue
        chosen.append(int(j))
    return chosen


def solve(gram: np.ndarray, moment: np.ndarray, subset: Sequence[int]) -> np.ndarray:
    """The coefficients of a subset of the terms, zero elsewhere; all zero if the regression overflowed."""
    out = np.zeros(len(moment))
    if subset and np.isfinite(gram).all() and np.isfinite(moment).all():
        s = list(subset)
        # A term that vanishes on all data has a column of zeros, and then the coefficient zero.
        scale = np.sqrt(np.maximum(np.diag(gram)[s], 1e-300))
        out[s] = (
            np.linalg.lstsq(gram[np.ix_(s, s)] / np.outer(scale, scale), moment[s] / scale, rcond=1e-12)[0]
            / scale
        )
    return out


def project_out(
    gram: np.ndarray, moment: np.ndarray, total: float, columns: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, float]:
    """The regression of what these columns leave unexplained on what they leave of all others."""
    if not columns:
        return gram, moment, total
    own = list(columns)
    scale = np.sqrt(np.maximum(np.diag(gram)[own], 1e-300))
    inverse = np.linalg.pinv(gram[np.ix_(own, own)] / np.outer(scale, scale), 1e-12, hermitian=True)
    weights = inverse / np.outer(scale, scale) @ np.column_stack([gram[own], moment[own]])
    rest = gram - gram[:, own] @ weights[:, :-1]
    # What is left of a column that they span is rounding.
    spanned = np.diag(rest) < 1e-8 * np.diag(gram)
    rest[spanned] = rest[:, spanned] = 0
    return rest, moment - gram[:, own] @ weights[:, -1], float(total - moment[own] @ weights[:, -1])


class WeakForm:
    """The regression of one choice of windows: Gram matrices of every channel's equation."""

    def __init__(self, data: Data, terms: Sequence[Term], *, window: int):
        self.terms = list(terms)
        box = data.box
        samples, frames = data.v.shape[:2]
        window = min(window, frames - 1)
        # Smooth at the ends of a window, as far as its frames resolve that.
        power = 4 if window >= 6 else max(1, window // 2)
        stride = max(1, window // 2)
        starts = list(range(0, frames - window, stride))
        shapes = list(dict.fromkeys((t.outer, t.factors) for t in terms))
        unique = [Term(0, *s) for s in shapes]
        system = System(unique, box, data.channels, data.inputs)
        number = [[i for i, t in enumerate(terms) if t.target == c] for c in range(data.channels)]
        column = [shapes.index((t.outer, t.factors)) for t in terms]
        clear = data.clear()
        v = data.v * clear
        n = len(shapes)
        gram = [np.zeros((n, n)) for _ in range(data.channels)]
        moment = [np.zeros(n) for _ in range(data.channels)]
        total = np.zeros(data.channels)
        rows = np.zeros(data.channels)
        weights = np.sqrt(box.multiplicity)
        for s in range(samples):
            which = np.full(frames, s)
            f = system.features(v[s], which, np.arange(frames), 0.0, range(n))
            time = np.concatenate([[0.0], np.cumsum(data.dt[s])])
            values, slopes = np.zeros((2, len(starts), frames))
            for i, start in enumerate(starts):
                part = slice(start, start + window + 1)
                t = time[part]
                middle, half = (t[0] + t[-1]) / 2, (t[-1] - t[0]) / 2
                r = (t - middle) / half
                w = np.gradient(t)
                psi = w * (1 - r**2) ** power
                slope = -w * r * (1 - r**2) ** (power - 1)
                # Exact for a constant rate, whatever the number of frames.
                values[i, part], slopes[i, part] = psi, slope * psi.sum() / -(slope * t).sum()
            x = (values @ f.reshape(frames, -1)).reshape(len(starts), *f.shape[1:])
            y = -(slopes @ v[s].reshape(frames, -1)).reshape(len(starts), *v.shape[2:])
            for c in range(data.channels):
                mask = clear[c]
                xc = (x * weights)[:, :, mask].transpose(1, 0, 2).reshape(n, -1)
                yc = (y[:, c] * weights)[:, mask].reshape(-1)
                gram[c] += (xc @ xc.conj().T).real
                moment[c] += (xc @ yc.conj()).real
                total[c] += (np.abs(yc) ** 2).sum()
                rows[c] += 2 * len(starts) * mask.sum() * stride / window
        self.equations = []
        for c in range(data.channels):
            cols = [column[i] for i in number[c]]
            self.equations.append(
                (number[c], gram[c][np.ix_(cols, cols)], moment[c][cols], total[c], rows[c])
            )

    def select(self, *, gain: float = 0.03, limit: int = 8, always: Sequence[int] = ()) -> np.ndarray:
        """Coefficients of the terms chosen for each equation, zero elsewhere. `always` are in any case."""
        out = np.zeros(len(self.terms))
        kept = set(always)
        for number, gram, moment, total, rows in self.equations:
            own = [i for i, j in enumerate(number) if j in kept]
            reduced = project_out(gram, moment, total, own)
            chosen = stepwise(*reduced, rows=rows, gain=gain, limit=limit)
            out[number] = solve(gram, moment, [*own, *chosen])
        return out

    def residual(self, channel: int, support: Sequence[int]) -> float:
        """The residual sum of squares of one channel's equation with these terms."""
        number, gram, moment, total, _ = self.equations[channel]
        kept = set(support)
        own = [i for i, j in enumerate(number) if j in kept]
        return max(project_out(gram, moment, total, own)[2], 1e-14 * total)

    def fit(self, support: Sequence[int]) -> np.ndarray:
        out = np.zeros(len(self.terms))
        for number, gram, moment, _, _ in self.equations:
            out[number] = solve(gram, moment, [i for i, j in enumerate(number) if j in set(support)])
        return out
