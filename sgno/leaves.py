"""Pytrees as named arrays and back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from sgno.errors import InputError


def flatten(tree: PyTree) -> dict[str, np.ndarray]:
    """Array leaves by path, as numpy arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves if eqx.is_array(leaf)}


def unflatten(arrays: dict[str, np.ndarray], like: PyTree, what: str) -> PyTree:
    """Put arrays back where `flatten` found them, checking names, shapes and dtypes.

    **Raises:** `InputError` naming the first array that does not fit.
    """
    expected = {
        jax.tree_util.keystr(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(like)
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    }
    if missing := sorted(expected.keys() - arrays.keys()):
        raise InputError(
            f"{what} lacks the array {missing[0]} (and {len(missing) - 1} more). It is of another model."
        )
    if extra := sorted(arrays.keys() - expected.keys()):
        raise InputError(
            f"{what} has an array {extra[0]} that this model does not have. It is of another model."
        )

    def put(path, leaf):
        name = jax.tree_util.keystr(path)
        if name not in expected:
            return leaf
        array = arrays[name]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise InputError(
                f"{what}: array {name} is {array.dtype}{list(array.shape)}, "
                f"but this model has {leaf.dtype}{list(leaf.shape)}."
            )
        return jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(put, like)
