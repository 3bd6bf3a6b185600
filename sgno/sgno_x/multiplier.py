"""Learned Fourier multipliers: two real arrays in a unit of their own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact, Int8


class Multiplier(eqx.Module):
    """w(k) = 2^unit(k) (real(k) + i imag(k)), or real altogether.

    The unit is fixed, an integer per number, and set by the start: about the change of `w(k)` that would by
    itself explain what the start leaves unexplained. An optimiser whose steps have the size of its rate
    (Adam) then moves every multiplier in proportion to what is still open about it: hardly at all where
    least squares already reached the rounding errors of the data.
    """

    real: Float[Array, "*shape"]
    imag: Float[Array, "*shape"] | None
    unit: Int8[Array, "*shape"]

    def __init__(self, value: np.ndarray | Array, unit: np.ndarray | float = 1.0, *, real: bool = False):
        exponent = np.clip(np.floor(np.log2(np.maximum(unit, 1e-30))), -100, 100)
        exponent = np.broadcast_to(exponent, value.shape)
        inverse = jnp.asarray(2.0**-exponent, dtype=jnp.float32)
        self.real = inverse * jnp.asarray(jnp.real(value), dtype=jnp.float32)
        self.imag = None if real else inverse * jnp.asarray(jnp.imag(value), dtype=jnp.float32)
        self.unit = jnp.asarray(exponent, dtype=jnp.int8)

    def __call__(self) -> Inexact[Array, "*shape"]:
        scale = self.scale()
        if self.imag is None:
            return scale * self.real
        return jax.lax.complex(scale * self.real, scale * self.imag)

    def scale(self) -> Float[Array, "*shape"]:
        """2^unit."""
        return jnp.exp2(self.unit.astype(self.real.dtype))
