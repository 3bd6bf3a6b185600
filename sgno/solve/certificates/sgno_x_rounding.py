"""How far an SGNO-X step in floating-point arithmetic can be from the same map in real arithmetic."""

import math

import numpy as np

from sgno.sgno_x import Scheme
from sgno.solve.certificates.bounds import gamma, largest, raised
from sgno.solve.certificates.sgno_x import (
    FactorBounds,
    SGNOXConstants,
    closure_gain,
    factor_bounds,
)

# An FFT of n points has a relative error of this many log2(n) units of rounding in the L2 norm at most;
# radix-2 transforms with accurate twiddles stay below 7 (Higham, theorem 24.2).
_FFT_ROUNDINGS = 8
# Clipping is exact; the modulus, its inverse square root and two products round this often.
_PROJECT_ROUNDINGS = 8


def sgno_x_rounding(scheme: Scheme, constants: SGNOXConstants, unit: float) -> float:
    """`b` with |fl(f)(u) - f(u)| <= b for every state u, as all stages lie in the trapping set.

    What each inner step adds passes through those behind it with the inner Lipschitz constant:
    E <- inner E + (what an inner step adds). Infinite without a trapping set.

    **Arguments:**

    - `scheme`, `constants`: the coefficients, its leaves numpy arrays, and the constants.
    - `unit`: the unit roundoff u of the arithmetic, 2^-24 for float32.
    """
    R = constants.ball
    if math.isinf(R):
        return math.inf
    points = math.prod(scheme.points)
    fft = _FFT_ROUNDINGS * max(1.0, math.log2(points)) * unit
    project = _PROJECT_ROUNDINGS * unit * R
    added = _inner(scheme, R, fft, project, unit, points)
    with np.errstate(over="ignore"):
        error = fft * R + project
        for _ in range(constants.inner_steps):
            error = constants.inner * error + added
        return raised(float(error + fft * (R + error)))


def _inner(scheme: Scheme, R: float, fft: float, project: float, unit: float, points: int) -> float:
    """What the rounding of one inner step adds to its result."""
    bounds = factor_bounds(scheme)
    terms = scheme.terms.products
    sizes = [bounds.norm(term) for term in terms]
    errors = [_product_error(bounds, term, fft, unit, points) for term in terms]
    slopes = [bounds.lipschitz(term) for term in terms]
    sums = gamma(len(terms) + len(scheme.w.P) + 8, unit)
    f = np.zeros(1) if scheme.w.f is None else np.asarray(scheme.w.f, np.complex128)

    def forced(coefficient):
        """The norm of coefficient * f."""
        product = np.abs(np.asarray(coefficient, np.complex128) * f)
        return math.sqrt(2 * float(np.sum(product**2)))

    def stage(coefficient) -> tuple[float, float, float]:
        """Of coefficient * n on the trapping set: its Lipschitz constant, norm and rounding error."""
        coefficient = np.asarray(coefficient, np.complex128)
        lipschitz = closure_gain(scheme, coefficient, slopes, 1.0)
        norm = closure_gain(scheme, coefficient, sizes, R) + forced(coefficient)
        error = closure_gain(scheme, coefficient, errors, 0.0) + sums * norm
        return lipschitz, norm, error

    decay, half_decay = largest(scheme.decay), largest(scheme.half_decay)
    _, n_first, e_first = stage(scheme.first)
    # Sums of a stage round a few times relative to what is added.
    e_a = e_first + 4 * unit * (decay * R + n_first)
    if scheme.stages == 1:
        return e_a + project
    T = np.asarray(scheme.w.T, np.complex128)
    L_last, n_last, e_last = stage(T * scheme.last)
    if scheme.stages == 2:
        e_c = 2 * e_last + L_last * (e_a + project) + 8 * unit * 2 * n_last
        return e_a + e_c + 4 * unit * (decay * R + n_first + 2 * n_last) + project
    L_half, n_half, e_half = stage(scheme.half)
    L_middle, n_middle, e_middle = stage(T * scheme.middle)
    e_a2 = e_half + 4 * unit * (half_decay * R + n_half) + project
    e_a3 = L_half * e_a2 + e_a2
    e_a4 = (
        half_decay * e_a2
        + L_half * 2 * e_a3
        + 3 * e_half
        + 8 * unit * (half_decay * R + 3 * n_half)
        + project
    )
    e_c = 4 * e_middle + L_middle * (e_a2 + e_a3) + 2 * e_last + L_last * e_a4
    e_c += 8 * unit * (4 * n_middle + 2 * n_last)
    return e_a + e_c + 4 * unit * (decay * R + n_first + 4 * n_middle + 2 * n_last) + project


def _product_error(
    bounds: FactorBounds, term: tuple[int, ...], fft: float, unit: float, points: int
) -> float:
    """The L2 error of q_j: transforms of its factors, their product, and its transform back."""
    relative = fft + 2 * unit
    # An L2 error of e in the mean is at most sqrt(points) e at one point.
    sup = bounds.sup + math.sqrt(points) * relative * bounds.size
    fields = sum(
        relative * bounds.size[a] * float(np.prod([sup[b] for j, b in enumerate(term) if j != i]))
        for i, a in enumerate(term)
    )
    computed = float(np.prod(sup[list(term)]))
    return fields + (len(term) * unit + fft) * computed
