"""The phi functions of exponential integrators, right for real and complex arguments."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Inexact

# Inside this radius the Taylor polynomial is exact to float64; outside it the closed form
# loses at most one bit to cancellation, in its gradient too.
_TAYLOR_RADIUS = 0.5
_TAYLOR_TERMS = 14


def phi1(z: Inexact[Array, "*shape"]) -> Inexact[Array, "*shape"]:
    """phi_1(z) = (e^z - 1) / z, and 1 at z = 0.

    The value and every derivative are finite at z = 0. For real z <= 0 the value lies in
    (0, 1], and |phi_1(z)| <= 1 whenever Re z <= 0.
    """
    small = jnp.abs(z) < _TAYLOR_RADIUS
    # Under `where` the gradient of the branch not taken still counts, times 0: NaN for expm1(z)/z at 0, and
    # where the polynomial overflows. So each branch gets a harmless z where the other is taken.
    near, far = jnp.where(small, z, 0), jnp.where(small, 1, z)
    return jnp.where(small, _taylor(near, order=1), jnp.expm1(far) / far)


def phi2(z: Inexact[Array, "*shape"]) -> Inexact[Array, "*shape"]:
    """phi_2(z) = (e^z - 1 - z) / z^2, and 1/2 at z = 0."""
    small = jnp.abs(z) < _TAYLOR_RADIUS
    near, far = jnp.where(small, z, 0), jnp.where(small, 1, z)
    return jnp.where(small, _taylor(near, order=2), (jnp.expm1(far) / far - 1) / far)


def _taylor(z: Inexact[Array, "*shape"], *, order: int) -> Inexact[Array, "*shape"]:
    """sum_n z^n / (n + order)!, by Horner's rule."""
    # Outside its radius the polynomial is not used, but powers of a large z would overflow there and turn the
    # zero gradient that `where` sends back into NaN.
    z = jnp.where(jnp.abs(z) < _TAYLOR_RADIUS, z, jnp.zeros_like(z))
    total = jnp.zeros_like(z)
    for n in reversed(range(_TAYLOR_TERMS)):
        total = total * z + 1 / math.factorial(n + order)
    return total
