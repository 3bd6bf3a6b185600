"""Share a batch between all local devices, and on each of them a few states at a time.

The cores of a CPU count as devices where a process asks for it (`use_every_core`): parts of a batch that do
not talk to each other keep all cores busy, which the parallel loops inside one small operation do not.
"""

import os
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

_AXIS = "devices"
Loss = Callable[[PyTree, Array], Array]


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def use_every_core(batch_size: int | None = None) -> None:
    """Make each core of this process a device, as many as divide the batch if that is known.

    Called by commands before they compute, never on import. Once JAX has started, or where the user has said
    how many devices there are (`XLA_FLAGS`, `JAX_NUM_CPU_DEVICES`), nothing changes.
    """
    asked = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if asked or "JAX_NUM_CPU_DEVICES" in os.environ:
        return
    count = next(n for n in range(len(cores()), 0, -1) if batch_size is None or batch_size % n == 0)
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        return


def local_mesh(count: int) -> Mesh | None:
    """All local devices, if there are several and they divide `count`."""
    devices = jax.local_devices()
    return None if len(devices) == 1 or count % len(devices) else _mesh()


def replicate(tree: PyTree) -> PyTree:
    """A copy of every array on every device."""
    return jax.tree.map(lambda leaf: _put(leaf, PartitionSpec()) if eqx.is_array(leaf) else leaf, tree)


def shard_batch(order: Array) -> Array:
    """Split the mini-batches `(updates, batch)` over the devices, if their number divides a batch."""
    return _put(order, PartitionSpec(None, _AXIS) if local_mesh(order.shape[1]) else PartitionSpec())


def mean_over_chunks(
    loss: Loss, weights: PyTree, states: Float[Array, "times batch *state"], size: int
) -> Float[Array, ""]:
    """The mean of `loss(weights, chunk)` over chunks of `size` states, with its gradient in the weights.

    The gradient of a chunk is taken right after its value and added up, so that memory does not grow with
    the batch and nothing is computed twice. There is no gradient in `states`.

    **Arguments:**

    - `loss`: a mean over the states that it is given.
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
        return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(weights, chunk)), None

    zero = (jnp.zeros((), chunks.dtype), jax.tree.map(jnp.zeros_like, weights))
    value, gradient = jax.lax.scan(add, zero, chunks)[0]
    count = chunks.shape[0]
    return value / count, (jax.tree.map(lambda g: g / count, gradient), jnp.zeros_like(chunks))


def _scaled(loss: Loss, residuals, g: Array):
    del loss
    gradient, no_gradient = residuals
    return jax.tree.map(lambda leaf: g * leaf, gradient), no_gradient


_mean.defvjp(_mean_and_gradient, _scaled)


def mean_over_devices(
    loss: Loss, weights: PyTree, states: Float[Array, "times batch *state"]
) -> Float[Array, ""]:
    """The mean of `loss(weights, part)` over the devices, each with its part of the batch.

    They meet once, at the end: each adds up the gradient of its own part.
    """
    mesh = local_mesh(states.shape[1])
    if mesh is None:
        return loss(weights, states)
    # One vector, or they would meet once for every array.
    vector, unravel = ravel_pytree(weights)
    mean = jax.shard_map(
        lambda vector, states: jax.lax.pmean(loss(unravel(vector), states), _AXIS),
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(None, _AXIS)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    return mean(vector, states)


def map_over_devices(
    f: Callable[[PyTree, Array], Array], weights: PyTree, states: Float[Array, "batch *state"]
) -> Float[Array, "batch *state"]:
    """`f(weights, states)` for an `f` that treats each state on its own: each device takes its part."""
    mesh = local_mesh(states.shape[0])
    if mesh is None:
        return f(weights, states)
    split = PartitionSpec(_AXIS)
    mapped = jax.shard_map(f, mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=False)
    return mapped(weights, states)


def _put(x: Array, spec: PartitionSpec) -> Array:
    return x if len(jax.local_devices()) == 1 else jax.device_put(x, NamedSharding(_mesh(), spec))


def _mesh() -> Mesh:
    return Mesh(np.asarray(jax.local_devices()), (_AXIS,))
