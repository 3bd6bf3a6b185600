"""The constants of a trained SGNO-X on its trapping set."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sgno.sgno_x import Scheme
from sgno.solve.certificates.bounds import largest, raised
from sgno.spectral import multiplicity

# What the form may consist of for `step` to be a bound; a scheme with anything else has none.
_BOUNDED = {"Lambda", "m", "K", "D", "P", "f", "T", "r"}
# The inverse transform of a state on the edge of the trapping set rounds: 8 log2(n) + 8 units of 2^-24 for n
# points (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2) stay below this.
_ROUNDING = 1e-4


@dataclasses.dataclass(frozen=True)
class SGNOXConstants:
    """Upper bounds of one SGNO-X step, in the discrete L2 norm.

    - `products`: how many there are; without any the step is linear.
    - `linear`: max |exp((Lambda + m)/S)|, the carry with its bounded growth.
    - `closure`: Lip(h phi_1 n) on the trapping set, the closure as it enters a stage.
    - `inner`: Lip of one inner step on the trapping set.
    - `step`: inner^S. Entering the trapping set moves no two states apart, so it holds for *all* states.
    - `radius`: no state after a step has a root mean square above this, per channel, whatever came in.
    - `sup`: nor a value above this.

    Without a trapping set products are unbounded: then `step` is infinite, unless there are none.
    """

    products: int
    linear: float
    closure: float
    inner: float
    inner_steps: int
    step: float
    radius: tuple[float, ...] | None
    sup: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True)
class FactorBounds:
    """Of each factor's field D_a v, v in the trapping set: its largest value, and max |D_a|."""

    sup: np.ndarray
    gain: np.ndarray

    def lipschitz(self, term: Sequence[int]) -> float:
        """Lip of the product of the factors: sum_a max |D_a| prod_{b != a} sup_b, one factor at a time."""
        others = lambda i: float(np.prod([self.sup[b] for j, b in enumerate(term) if j != i]))
        return float(sum(self.gain[a] * others(i) for i, a in enumerate(term)))


def factor_bounds(scheme: Scheme) -> FactorBounds:
    """The bounds on the trapping set |v(k)| <= r(k); infinite without one.

    max_x |D_a v| <= sum_k m(k) |D_a(k)| r(k).
    """
    D = np.abs(np.asarray(scheme.w.D, np.complex128))
    axes = tuple(range(1, D.ndim))
    gain = D.max(axis=axes, initial=0.0)
    if scheme.w.r is None:
        return FactorBounds(np.full(len(D), math.inf), gain)
    reach = np.asarray(scheme.w.r, np.float64)[scheme.terms.channels] * D
    return FactorBounds(np.sum(multiplicity(scheme.points) * reach, axis=axes), gain)


def closure_lipschitz(scheme: Scheme, coefficient: np.ndarray, slopes: Sequence[float]) -> float:
    """Lip of `coefficient` times the closure,

        sqrt( sum_c ( sum_j max_k |a_c P_cj| slope_j + sqrt( sum_d max_k |a_c K_cd|² ) )² ),

    with `a` the coefficient and `slopes` the Lipschitz constants of the products.
    """
    P = np.asarray(scheme.w.P, np.complex128)
    per_channel = []
    for c in range(len(P)):
        weights = [largest(coefficient[c] * P[c, j]) for j in range(P.shape[1])]
        # A product that contributes nothing needs no bound, though it may have none.
        total = sum(weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight > 0)
        if scheme.w.K is not None:
            K = np.asarray(scheme.w.K, np.complex128)
            total += math.sqrt(sum(largest(coefficient[c] * K[c, d]) ** 2 for d in range(len(P))))
        per_channel.append(total)
    return math.sqrt(sum(x * x for x in per_channel))


def sgno_x_constants(scheme: Scheme, S: int) -> SGNOXConstants:
    """All constants of one step.

    The stages are those of `Scheme.inner`, with N_x the Lipschitz constant of x n on the trapping set:

        a = e^z v + h phi_1 n(v):              L_a = |e^z| + N_first
        two stages, a + T h phi_2 (n(a) - n(v)):   L = L_a + N_last (L_a + 1)

    and likewise for four stages.

    **Arguments:**

    - `scheme`: the coefficients, its leaves numpy arrays.
    - `S`: the number of inner steps.
    """
    bounds = factor_bounds(scheme)
    slopes = [bounds.lipschitz(term) for term in scheme.terms.products]

    def N(coefficient):
        return closure_lipschitz(scheme, np.asarray(coefficient, np.complex128), slopes)

    decay, half_decay = largest(scheme.decay), largest(scheme.half_decay)
    T = np.asarray(scheme.w.T, np.complex128)
    closure = N(scheme.first)
    inner = inner_lipschitz(
        scheme.stages,
        decay,
        half_decay,
        first=closure,
        half=N(scheme.half),
        middle=N(T * scheme.middle),
        last=N(T * scheme.last),
    )
    radius = sup = None
    if scheme.w.r is not None:
        m, r = multiplicity(scheme.points), np.asarray(scheme.w.r, np.float64)
        axes = tuple(range(1, r.ndim))
        radius = tuple(float(x) * (1 + _ROUNDING) for x in np.sqrt(np.sum(m * r**2, axis=axes)))
        sup = tuple(float(x) * (1 + _ROUNDING) for x in np.sum(m * r, axis=axes))
    with np.errstate(over="ignore"):
        whole = float(np.power(raised(inner), S)) if _all_bounded(scheme) else math.inf
    return SGNOXConstants(len(slopes), decay, closure, inner, S, whole, radius, sup)


def _all_bounded(scheme: Scheme) -> bool:
    """Whether the scheme has no other parts than those that the constants are made of."""
    fields = {field.name: getattr(scheme.w, field.name) for field in dataclasses.fields(scheme.w)}
    return {name for name, part in fields.items() if part is not None} <= _BOUNDED


def inner_lipschitz(
    stages: int, decay: float, half_decay: float, *, first: float, half: float, middle: float, last: float
) -> float:
    """Lip of one inner step from the norms of its coefficients; see `Scheme.inner`."""
    a = decay + first
    if stages == 1:
        return a
    if stages == 2:
        return a + last * (a + 1)
    a2 = half_decay + half
    a3 = half_decay + half * a2
    a4 = half_decay * a2 + half * (2 * a3 + 1)
    return a + middle * (a2 + a3 + 2) + last * (a4 + 1)
