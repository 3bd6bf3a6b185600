"""The correction field C(v): a pointwise MLP with both matrices spectrally normalised."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.nn.pointwise import Affine
from sgno.spectral import spectral_norm_bound


class Correction(eqx.Module):
    """C(v) = W_2 gelu(W_1 v + b_1) + b_2 with `C -> 2C -> C` and ||W_1||_2 = ||W_2||_2 = 1."""

    first: Affine
    second: Affine

    def __init__(self, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = Affine(width, 2 * width, key=first_key)
        self.second = Affine(2 * width, width, key=second_key)

    def normalised(self) -> tuple[Float[Array, "*layers hidden in"], Float[Array, "*layers out hidden"]]:
        """The two matrices, each divided by its spectral norm; those of many layers if these are stacked."""
        first, second = _scaled(self.first.weight), _scaled(self.second.weight)
        # All at once: they have one shape, and squaring many takes no longer than squaring one.
        matrices = jnp.moveaxis(jnp.stack([first, second.mT], axis=-1), (-3, -2), (0, 1))
        norms = spectral_norm_bound(matrices)
        return _divided(first, norms[..., 0]), _divided(second, norms[..., 1])


def _scaled(weight: Float[Array, "*layers out in"]) -> Float[Array, "*layers out in"]:
    """Times a power of two, so exactly: the gradient of the quotient then has no 1/norm² to overflow."""
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(weight), axis=(-2, -1), keepdims=True))
    return weight / jnp.ldexp(jnp.ones_like(largest), jnp.frexp(largest)[1])


def _divided(
    weight: Float[Array, "*layers out in"], norm: Float[Array, "*layers"]
) -> Float[Array, "*layers out in"]:
    # A zero matrix stays zero, with a zero gradient instead of 0/0.
    return weight / jnp.where(norm > 0, norm, jax.lax.stop_gradient(jnp.ones_like(norm)))[..., None, None]
