"""Upper bounds that survive rounding: norms in float64 of the float32 coefficients that really run."""

import math
from typing import Any

import numpy as np

# The largest slope of x Phi(x), at x = sqrt(2): (1 + erf(1))/2 + exp(-1)/sqrt(pi) = 1.128904145...
GELU_SLOPE = 1.12890415
# Slopes lie within 1/2 +- this, so that gelu(x) = x/2 + g(x) with |g'| <= this.
GELU_SPREAD = GELU_SLOPE - 0.5
# Computed singular values are off by p(m, n) 2^-53 of the largest; this allows p up to 9e5.
NORM_MARGIN = 1e-10
# Another compiled program may round the coefficients (exponentials, capped norms) differently by a few ulps
# of float32, 1.2e-7 each: every constant is raised by this.
COEFFICIENT_MARGIN = 1e-5


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


def largest(values: Any) -> float:
    """max |z|, raised by `NORM_MARGIN`; 0 of nothing."""
    return float(np.abs(np.asarray(values, np.complex128)).max(initial=0.0)) * (1 + NORM_MARGIN)


def through_gelu(first: Any, second: Any) -> float:
    """Lip(W_2 gelu(W_1 .)) <= ||W_2|| ||W_1|| Lip(gelu), or less by gelu(x) = x/2 + g(x)."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    product = spectral_norm(second) * spectral_norm(first)
    return min(GELU_SLOPE * product, spectral_norm(second @ first) / 2 + GELU_SPREAD * product)


def raised(constant: float) -> float:
    """A constant that still holds if the coefficients behind it were rounded differently."""
    return constant * (1 + COEFFICIENT_MARGIN)
