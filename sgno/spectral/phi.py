"""The phi functions of exponential integrators, right for real and complex arguments.

    phi_0(z) = e^z,   phi_{n+1}(z) = (phi_n(z) - 1/n!) / z,   phi_n(0) = 1/n!.

NumPy arrays are computed on the host, JAX arrays by JAX.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

Either = TypeVar("Either", Array, np.ndarray)

# Inside the radius a Taylor polynomial is exact to the precision of its argument; outside it the recursion
# loses a bit or two to cancellation. By order: radius, terms for float32 and for float64.
_TAYLOR: dict[int, tuple[float, int, int]] = {1: (0.5, 9, 15), 2: (0.5, 9, 15), 3: (1.5, 12, 20)}


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
    return _value(order, z, np) if isinstance(z, np.ndarray) else _differentiable(order, z)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _differentiable(order: int, z: Array) -> Array:
    return _value(order, z, jnp)


@_differentiable.defjvp
def _(order: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # phi_n'(z) = (phi_{n-1}(z) - n phi_n(z)) / z, by Taylor where this cancels. Not left to the rules of
    # differentiation: they take the gradient of both branches, and their chain of products compiles slowly.
    (z,), (dz,) = primals, tangents
    value = _differentiable(order, z)
    small, near, far = _branches(order, z, jnp)
    before = jnp.exp(far) if order == 1 else _differentiable(order - 1, far)
    weight = lambda n: (n + 1) / math.factorial(n + 1 + order)
    slope = jnp.where(small, _polynomial(order, near, weight), (before - order * value) / far)
    return value, slope * dz


def _value(order: int, z: Any, xp: Any) -> Any:
    small, near, far = _branches(order, z, xp)
    recursion = xp.expm1(far) / far
    for n in range(1, order):
        recursion = (recursion - 1 / math.factorial(n)) / far
    return xp.where(small, _polynomial(order, near, lambda n: 1 / math.factorial(n + order)), recursion)


def _branches(order: int, z: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Where Taylor holds, and the argument for either branch, harmless where the other one is taken: under
    `where` both are computed, and a NaN or an overflow in one would reach the gradient of the other."""
    small = xp.abs(z) < _TAYLOR[order][0]
    return small, xp.where(small, z, 0), xp.where(small, 2, z)


def _polynomial(order: int, z: Any, weight: Callable[[int], float]) -> Any:
    """sum_n weight(n) z^n, by Horner's rule."""
    _, single, double = _TAYLOR[order]
    terms = single if np.finfo(z.dtype).bits == 32 else double
    total = weight(terms - 1)
    for n in reversed(range(terms - 1)):
        total = total * z + weight(n)
    return total
