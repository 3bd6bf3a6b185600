"""Spread seeds or batches over all local devices. One device: everything stays as it is."""

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree


def _mesh() -> Mesh | None:
    devices = jax.local_devices()
    return Mesh(np.asarray(devices), ("devices",)) if len(devices) > 1 else None


def replicate(x: Array) -> Array:
    """A copy of `x` on every device."""
    mesh = _mesh()
    return x if mesh is None else jax.device_put(x, NamedSharding(mesh, PartitionSpec()))


def shard_seeds(tree: PyTree, num_seeds: int) -> PyTree:
    """Split the leading seed axis over the devices, if they divide it."""
    mesh = _mesh()
    if mesh is None or num_seeds % mesh.size:
        return tree
    put = NamedSharding(mesh, PartitionSpec("devices"))
    return jax.tree.map(lambda leaf: jax.device_put(leaf, put) if eqx.is_array(leaf) else leaf, tree)


def shard_batch(order: Array, mapped: bool) -> Array:
    """Split the mini-batches `(updates, [seeds,] batch)` over the devices, if they divide the last axis.

    With mapped seeds the seed axis is split instead, where it divides.
    """
    mesh = _mesh()
    if mesh is None:
        return order
    if mapped and order.shape[1] % mesh.size == 0:
        spec = PartitionSpec(None, "devices")
    elif order.shape[-1] % mesh.size == 0:
        spec = PartitionSpec(*(None,) * (order.ndim - 1), "devices")
    else:
        spec = PartitionSpec()
    return jax.device_put(order, NamedSharding(mesh, spec))
