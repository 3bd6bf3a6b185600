"""All states of a batch one step on, as fast as the machine can."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from sgno.models.step import AbstractStep, chunk_size
from sgno.training.sharding import map_over_devices


def advance_batch(
    prepared: AbstractStep, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    """`prepared.batch(u)`: the devices share the states, and a CPU takes a few of them at a time."""
    weights, rest = eqx.partition(prepared, eqx.is_array)

    def part(weights, u):
        step = eqx.combine(weights, rest)
        size = chunk_size(step, u.shape[0], u.shape[2:])
        if size == u.shape[0]:
            return step.batch(u)
        chunks = u.reshape(-1, size, *u.shape[1:])
        return jax.lax.map(step.batch, chunks).reshape(u.shape)

    return map_over_devices(part, weights, u)
