"""The complex channel mixer A(k) of the correction."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.spectral import retained_shape, spectral_norm_bound

# A sum of squares below this has a true value below 1, whatever the rounding of some thousand terms.
_CLEARLY_BELOW_ONE = 0.999


class Mixer(eqx.Module):
    """A(k), one complex `C x C` matrix per retained mode, stored as two real arrays."""

    real: Float[Array, "out in *modes"]
    imag: Float[Array, "out in *modes"]

    def __init__(self, num_spatial_dims: int, width: int, num_modes: int, *, key: PRNGKeyArray):
        """In 1D and 3D (U[0,1) + i U[0,1)) / C^2; in 2D complex normal of variance 1/C."""
        shape = (width, width, *retained_shape(num_spatial_dims, num_modes))
        re_key, im_key = jax.random.split(key)
        if num_spatial_dims == 2:
            scale, draw = math.sqrt(0.5 / width), jax.random.normal
        else:
            scale, draw = 1 / width**2, jax.random.uniform
        self.real = scale * draw(re_key, shape)
        self.imag = scale * draw(im_key, shape)

    def capped(
        self, excess: Float[Array, "*modes"] | None = None
    ) -> tuple[Float[Array, "out in *modes"], Float[Array, "out in *modes"]]:
        """A(k) / max(1, ||A(k)||_2): spectral norm at most 1 for every value of the weights.

        `excess` is the divisor where it is known already (`excesses`).
        """
        excess = excesses(self.real, self.imag) if excess is None else excess
        return self.real / excess, self.imag / excess


def excesses(re: Float[Array, "out in *many"], im: Float[Array, "out in *many"]) -> Float[Array, "*many"]:
    """max(1, ||A||_2) of each of many matrices.

    While every Frobenius norm, which no spectral norm exceeds, is below 1, that is 1 without a product.
    """
    squares = jnp.sum(re**2 + im**2, axis=(0, 1))
    return jax.lax.cond(
        jnp.all(squares < _CLEARLY_BELOW_ONE),
        lambda: jnp.ones_like(squares),
        lambda: jnp.maximum(1, spectral_norm_bound(re, im, cap=1.0)),
    )
