"""A batch taken a few states at a time, so that what a step makes of them stays in the cache of a CPU."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Loss = Callable[[PyTree, Array], Array]


def mean_over_chunks(
    loss: Loss, weights: PyTree, states: Float[Array, "times batch *state"], size: int
) -> Float[Array, ""]:
    """The mean of `loss(weights, chunk)` over chunks of `size` states, with its gradient in the weights.

    The gradient of a chunk is taken right after its value and added up, so that memory does not grow with
    the batch and nothing is computed twice. There is no gradient in `states`.

    **Arguments:**

    - `loss`: a mean over the states that it gets.
    - `weights`: floating-point arrays.
    - `states`: the whole batch.
    - `size`: a divisor of the batch.
    """
    times, batch, *state = states.shape
    if size == batch:
        return loss(weights, states)
    chunks = jnp.moveaxis(states.reshape(times, batch // size, size, *state), 1, 0)
    return _mean(loss, weights, chunks)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mean(loss: Loss, weights: PyTree, chunks: Array) -> Array:
    return jnp.mean(jax.lax.map(lambda chunk: loss(weights, chunk), chunks))


def _mean_and_gradient(loss: Loss, weights: PyTree, chunks: Array):
    def add(total, chunk):
        found = jax.value_and_grad(loss)(weights, chunk)
        return jax.tree.map(jnp.add, total, found), None

    zero = (jnp.zeros((), chunks.dtype), jax.tree.map(jnp.zeros_like, weights))
    value, gradient = jax.lax.scan(add, zero, chunks)[0]
    count = chunks.shape[0]
    return value / count, (jax.tree.map(lambda g: g / count, gradient), jnp.zeros_like(chunks))


def _scaled(loss: Loss, residuals, g: Array):
    del loss
    gradient, no_gradient = residuals
    return jax.tree.map(lambda leaf: g * leaf, gradient), no_gradient


_mean.defvjp(_mean_and_gradient, _scaled)
