"""The constants of a trained SGNO-X on its trapping set."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sgno.sgno_x import Scheme
from sgno.solve.certificates.bounds import largest, raised
from sgno.spectral import multiplicity


@dataclasses.dataclass(frozen=True)
class SGNOXConstants:
    """Upper bounds of one SGNO-X step, in the discrete L2 norm.

    - `carry`: max |exp(Lambda/S)|, at most 1.
    - `linear`: max |exp((Lambda + m)/S)|, the carry with its bounded growth.
    - `closure`: Lip(h phi_1 n) on the trapping set, the closure as it enters a stage.
    - `inner`: Lip of one inner step on the trapping set.
    - `step`: inner^S. Entering the trapping set moves no two states apart, so it holds for *all* states.
    - `radius`: no state after a step has a root mean square above this, per channel, whatever came in.
    - `sup`: nor a value above this.

    Without a trapping set products are unbounded: then `step` is infinite, unless there are none.
    """

    carry: float
    linear: float
    closure: float
    inner: float
    inner_steps: int
    step: float
    radius: tuple[float, ...] | None
    sup: tuple[float, ...] | None

    @property
    def ball(self) -> float:
        """The root mean square of a state, all channels together, is at most this."""
        return math.inf if self.radius is None else math.sqrt(sum(r * r for r in self.radius))


@dataclasses.dataclass(frozen=True)
class FactorBounds:
    """Of each factor's field D_a v, v in the trapping set: its largest value, its L2 norm, and max |D_a|."""

    sup: np.ndarray
    size: np.ndarray
    gain: np.ndarray

    def lipschitz(self, term: Sequence[int]) -> float:
        """Lip of the product of the factors: sum_a max |D_a| prod_{b != a} sup_b, one factor at a time."""
        return float(sum(self.gain[a] * _others(self.sup, term, i) for i, a in enumerate(term)))

    def norm(self, term: Sequence[int]) -> float:
        """The L2 norm of the product: one factor in L2, the others in the largest value."""
        return float(min(self.size[a] * _others(self.sup, term, i) for i, a in enumerate(term)))


def _others(values: np.ndarray, term: Sequence[int], left_out: int) -> float:
    return float(np.prod([values[b] for i, b in enumerate(term) if i != left_out]))


def factor_bounds(scheme: Scheme) -> FactorBounds:
    """The bounds on the trapping set |v(k)| <= r(k); infinite without one.

    max_x |D_a v| <= sum_k m(k) |D_a(k)| r(k),   |D_a v|² <= sum_k m(k) |D_a(k)|² r(k)².
    """
    D = np.abs(np.asarray(scheme.w.D, np.complex128))
    axes = tuple(range(1, D.ndim))
    gain = D.max(axis=axes, initial=0.0)
    if scheme.w.r is None:
        return FactorBounds(np.full(len(D), math.inf), np.full(len(D), math.inf), gain)
    reach = np.asarray(scheme.w.r, np.float64)[scheme.terms.channels] * D
    m = multiplicity(scheme.points)
    return FactorBounds(np.sum(m * reach, axis=axes), np.sqrt(np.sum(m * reach**2, axis=axes)), gain)


def closure_gain(scheme: Scheme, coefficient: np.ndarray, per_term: Sequence[float], linear: float) -> float:
    """The norm over channels of `coefficient` times the closure,

        sqrt( sum_c ( sum_j max_k |a_c P_cj| per_term_j + linear sqrt( sum_d max_k |a_c K_cd|² ) )² ),

    with `a` the coefficient, and `per_term` and `linear` what each feature contributes: Lipschitz constants,
    norms or errors.
    """
    P = np.asarray(scheme.w.P, np.complex128)
    per_channel = []
    for c in range(len(P)):
        weights = [largest(coefficient[c] * P[c, j]) for j in range(P.shape[1])]
        # A product that contributes nothing needs no bound, though it may have none.
        total = sum(weight * bound for weight, bound in zip(weights, per_term, strict=True) if weight > 0)
        if scheme.w.K is not None:
            K = np.asarray(scheme.w.K, np.complex128)
            total += linear * math.sqrt(sum(largest(coefficient[c] * K[c, d]) ** 2 for d in range(len(P))))
        per_channel.append(total)
    return math.sqrt(sum(x * x for x in per_channel))


def sgno_x_constants(scheme: Scheme, S: int, damping: np.ndarray) -> SGNOXConstants:
    """All constants of one step.

    The stages are those of `Scheme.inner`, with N_x the Lipschitz constant of x n on the trapping set:

        a = e^z v + h phi_1 n(v):              L_a = |e^z| + N_first
        two stages, a + T h phi_2 (n(a) - n(v)):   L = L_a + N_last (L_a + 1)

    and likewise for four stages.

    **Arguments:**

    - `scheme`: the coefficients, its leaves numpy arrays.
    - `S`: the number of inner steps.
    - `damping`: Re Lambda, without the growth.
    """
    bounds = factor_bounds(scheme)
    slopes = [bounds.lipschitz(term) for term in scheme.terms.products]

    def N(coefficient):
        return closure_gain(scheme, np.asarray(coefficient, np.complex128), slopes, 1.0)

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
        radius = tuple(raised(float(x)) for x in np.sqrt(np.sum(m * r**2, axis=axes)))
        sup = tuple(raised(float(x)) for x in np.sum(m * r, axis=axes))
    with np.errstate(over="ignore"):
        whole = float(np.power(raised(inner), S))
    carry = float(np.exp(damping.max() / S))
    return SGNOXConstants(carry, decay, closure, inner, S, whole, radius, sup)


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
