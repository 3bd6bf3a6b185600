"""The phi functions of exponential integrators, right for real and complex arguments.

    phi_0(z) = e^z,   phi_{n+1}(z) = (phi_n(z) - 1/n!) / z,   phi_n(0) = 1/n!.

NumPy arrays are computed on the host, JAX arrays by JAX.
"""

import math
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

Either = TypeVar("Either", Array, np.ndarray)

# Inside the radius the Taylor polynomial is exact to float64; outside it the recursion loses a bit or two to
# cancellation, in its gradient too. By order: radius and number of terms.
_TAYLOR = {1: (0.5, 14), 2: (0.5, 14), 3: (1.5, 20)}


def phi1(z: Inexact[Either, "*shape"]) -> Inexact[Either, "*shape"]:
    """phi_1(z) = (e^z - 1) / z, and 1 at z = 0.

    The value and every derivative are finite at z = 0. For real z <= 0 the value lies in (0, 1], and
    |phi_1(z)| <= 1 whenever Re z <= 0.
    """
    return _phi(1, z)


def phi2(z: Inexact[Either, "*shape"]) -> Inexact[Either, "*shape"]:
    """phi_2(z) = (e^z - 1 - z) / z², and 1/2 at z = 0."""
    return _phi(2, z)


def phi3(z: Inexact[Either, "*shape"]) -> Inexact[Either, "*shape"]:
    """phi_3(z) = (e^z - 1 - z - z²/2) / z³, and 1/6 at z = 0."""
    return _phi(3, z)


def _phi(order: int, z: Any) -> Any:
    xp = np if isinstance(z, np.ndarray) else jnp
    radius, terms = _TAYLOR[order]
    small = xp.abs(z) < radius
    # Under `where` the gradient of the branch not taken still counts, times 0: NaN for expm1(z)/z at 0, and
    # where powers of a large z overflow. So each branch gets a harmless z where the other is taken.
    near, far = xp.where(small, z, 0), xp.where(small, 2, z)
    taylor = xp.zeros_like(z)
    for n in reversed(range(terms)):
        taylor = taylor * near + 1 / math.factorial(n + order)
    recursion = xp.expm1(far) / far
    for n in range(1, order):
        recursion = (recursion - 1 / math.factorial(n)) / far
    return xp.where(small, taylor, recursion)
