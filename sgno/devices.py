"""Spread seeds or batches over all local devices. One device: everything stays as it is.

The cores of a CPU count as devices where a process asks for it (`use_every_core`): parts of a batch that do
not talk to each other keep all cores busy, which the parallel loops inside one small operation do not.
"""

import os
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

_AXIS = "devices"


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
    return _put_all(tree, PartitionSpec())


def shard_seeds(tree: PyTree, num_seeds: int) -> PyTree:
    """Split the leading seed axis over the devices, if they divide it."""
    return _put_all(tree, PartitionSpec() if local_mesh(num_seeds) is None else PartitionSpec(_AXIS))


def shard_batch(order: Array) -> Array:
    """Split the mini-batches `(updates, [seeds,] batch)` over the devices, if they divide the last axis.

    Where there are seeds and the devices divide them, their axis is split instead.
    """
    if order.ndim == 3 and local_mesh(order.shape[1]) is not None:
        return _put(order, PartitionSpec(None, _AXIS))
    if local_mesh(order.shape[-1]) is not None:
        return _put(order, PartitionSpec(*(None,) * (order.ndim - 1), _AXIS))
    return _put(order, PartitionSpec())


def seeds_apart(updates: Callable[..., PyTree], num_seeds: int) -> Callable[..., PyTree]:
    """`updates(state, arrays, data, order, count)` of one seed, for seeds that never meet.

    State and arrays lead with the seeds, the order of the windows and what is recorded have them second.
    Each device has its own seeds.
    """
    mesh = local_mesh(num_seeds)
    if mesh is None:
        return _every_seed(updates)
    own, second, shared = PartitionSpec(_AXIS), PartitionSpec(None, _AXIS), PartitionSpec()
    # Left to the compiler, devices meet inside an update, where they may wait for each other for ever.
    return jax.shard_map(
        _every_seed(updates),
        mesh=mesh,
        in_specs=(own, own, shared, second, shared),
        out_specs=(own, second),
        check_vma=False,
    )


def _every_seed(updates: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """All seeds of one device: at once, which fills an accelerator; in turn, which suits a core's cache."""
    if jax.default_backend() != "cpu":
        return jax.vmap(updates, in_axes=(0, 0, None, 1, None), out_axes=(0, 1))

    def in_turn(state, arrays, data, order, count):
        seeds = (state, arrays, jnp.swapaxes(order, 0, 1))
        state, recorded = jax.lax.map(lambda seed: updates(*seed[:2], data, seed[2], count), seeds)
        return state, jnp.swapaxes(recorded, 0, 1)

    return in_turn


def mean_over_devices(
    loss: Callable[[PyTree, Array], Array], weights: PyTree, states: Float[Array, "times batch *state"]
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


def _put_all(tree: PyTree, spec: PartitionSpec) -> PyTree:
    return jax.tree.map(lambda leaf: _put(leaf, spec) if eqx.is_array(leaf) else leaf, tree)


def _put(x: Array, spec: PartitionSpec) -> Array:
    return x if len(jax.local_devices()) == 1 else jax.device_put(x, NamedSharding(_mesh(), spec))


def _mesh() -> Mesh:
    return Mesh(np.asarray(jax.local_devices()), (_AXIS,))
