"""Upper bounds that survive rounding: norms in float64, sums in float32.

Two kinds of rounding are kept apart. The *constants* are computed in float64 from the float32 coefficients
that really run, and raised by margins that exceed what float64 can lose. The *evaluation* of a step in
float32 differs from the same map in real arithmetic; by how much at most is worked out from the standard
model of floating-point arithmetic, fl(a op b) = (a op b)(1 + e), |e| <= u (Higham, Accuracy and Stability of
Numerical Algorithms, chapters 2, 3 and 24).
"""

import math
from typing import Any

import numpy as np

# The largest slope of x Phi(x), at x = sqrt(2): (1 + erf(1))/2 + exp(-1)/sqrt(pi) = 1.128904145...
GELU_SLOPE = 1.12890415
# Slopes lie within 1/2 +- this, so that gelu(x) = x/2 + g(x) with |g'| <= this.
GELU_SPREAD = GELU_SLOPE - 0.5
# What |erf| of the float32 library may lose, in units of rounding of x: 3 were measured.
GELU_ROUNDINGS = 8
# Computed singular values are off by p(m, n) 2^-53 of the largest; this allows p up to 9e5.
NORM_MARGIN = 1e-10
# Another compiled program may round the coefficients (exponentials, capped norms) differently by a few ulps
# of float32, 1.2e-7 each: every constant is raised by this.
COEFFICIENT_MARGIN = 1e-5

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


def spectral_norm(matrices: Any) -> float:
    """The largest spectral norm of matrices along the last two axes, never too small.

    Singular values in float64, raised by `NORM_MARGIN`; 0 if there is no matrix.
    """
    wide = np.asarray(matrices, np.complex128 if np.iscomplexobj(matrices) else np.float64)
    if wide.size == 0:
        return 0.0
    if not np.isfinite(wide).all():
        return math.inf
    return float(np.linalg.norm(wide, ord=2, axis=(-2, -1)).max()) * (1 + NORM_MARGIN)


def frobenius_norm(matrices: Any) -> float:
    """The largest Frobenius norm of matrices along the last two axes: the norm of their moduli at most."""
    norms = np.linalg.norm(np.asarray(matrices, np.complex128), axis=(-2, -1))
    return float(norms.max(initial=0.0)) * (1 + NORM_MARGIN)


def largest(values: Any) -> float:
    """max |z|, raised by `NORM_MARGIN`; 0 of nothing."""
    return float(np.abs(np.asarray(values, np.complex128)).max(initial=0.0)) * (1 + NORM_MARGIN)


def gamma(operations: int, unit: float) -> float:
    """gamma_n = n u / (1 - n u): the relative error of a sum of products of `n` operations, in any order."""
    return operations * unit / (1 - operations * unit) if operations * unit < 1 else math.inf


def raised(constant: float) -> float:
    """A constant that still holds if the coefficients behind it were rounded differently."""
    return constant * (1 + COEFFICIENT_MARGIN)
