"""A certificate in other units: what a change of units around a certified step does to its constants.

A step fitted to a user's data is g(u) = S f(S^-1 (u - m)) + m with S = diag(s), one mean m_c and one scale
s_c for each channel. The norm |.| adds the channels up as they are, so with kappa = max_c s_c / min_c s_c,

    |g(u) - g(v)| <= max s |f(..) - f(..)| <= max s Lip(f) |S^-1 (u - v)| <= kappa Lip(f) |u - v|.

If one scale serves all channels it cancels, and the constant is that of f. Otherwise kappa stays: a channel
of small numbers may act on one of large numbers. (In the norm |S^-1 u| of the model's own units, Lip(f) holds
as it is.) Where f(u) = u + F(u), as in SGNO, the state passes by and only F is stretched: Lip(g) <= 1 + kappa
Lip(F). A state of f inside |f_c| <= r_c becomes one of g inside s_c r_c + |m_c|.
"""

import dataclasses
import math

from sgno.solve.certificates.bounds import gamma, raised

# (u - m) / s, possibly as a product with 1 / s; then s y + m.
_OPERATIONS = 3


@dataclasses.dataclass(frozen=True)
class Units:
    """A mean and a scale for each channel."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def kappa(self) -> float:
        """The largest scale over the smallest one, 1 if there is one scale."""
        ratio = max(self.scale) / min(self.scale)
        return 1.0 if ratio == 1 else raised(ratio)

    @property
    def shift(self) -> float:
        """|m| as a state."""
        return math.sqrt(sum(m * m for m in self.mean))

    def lipschitz(self, inner: float, *, residual: bool) -> float:
        """The constant of g from that of f; `residual` if the latter is 1 + Lip(F)."""
        return 1 + self.kappa * (inner - 1) if residual else self.kappa * inner

    def bounds(self, inner: tuple[float, ...]) -> tuple[float, ...]:
        """What bounds the channels of g from what bounds those of f."""
        return tuple(raised(s * r + abs(m)) for m, s, r in zip(self.mean, self.scale, inner, strict=True))

    def rounding(
        self, inner: tuple[float, float], lipschitz: float, reach: tuple[float, float], unit: float
    ) -> tuple[float, float]:
        """`(a, b)` of g as evaluated, |fl(g)(u) - g(u)| <= a |u| + b.

        With w = S^-1 (u - m), |w| <= (|u| + |m|) / min s, its computed value is off by gamma |w|, so the
        computed f(w) by E = (a_f (1 + gamma) + Lip(f) gamma) |w| + b_f; and s y + m rounds by gamma of what
        it adds, |s y| <= max s (|f(w)| + E) and |m|.

        **Arguments:**

        - `inner`: `(a_f, b_f)` of f.
        - `lipschitz`: Lip(f).
        - `reach`: `(p, q)` with |f(w)| <= p |w| + q.
        - `unit`: the unit roundoff of the arithmetic.
        """
        g = gamma(_OPERATIONS, unit)
        largest, smallest, m = max(self.scale), min(self.scale), self.shift
        a, b = inner
        per_w = largest * ((1 + g) * (a * (1 + g) + lipschitz * g) + g * reach[0]) / smallest
        absolute = per_w * m + largest * ((1 + g) * b + g * reach[1]) + g * m
        return raised(per_w), raised(absolute)
