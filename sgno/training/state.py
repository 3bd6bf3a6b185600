"""The whole of a training run as one pytree, and its checkpoint."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from sgno.errors import InputError
from sgno.io.files import load_arrays, save_arrays
from sgno.weights import flatten, unflatten


class TrainState(eqx.Module):
    """Parameters, optimiser, update number and key. A checkpoint is the whole of it."""

    params: PyTree[Array]
    optimizer: PyTree[Array]
    update: Int[Array, ""]
    key: PRNGKeyArray


def save_checkpoint(path: Path, state: TrainState, losses: np.ndarray, settings: dict[str, Any]) -> None:
    """Write the state and the losses so far, whole or not at all."""
    raw = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, state)
    save_arrays(path, {"settings": settings}, {**flatten(raw), "losses": losses})


def load_checkpoint(path: Path, like: TrainState, settings: dict[str, Any]) -> tuple[TrainState, np.ndarray]:
    """The state and losses of a checkpoint of the same run.

    **Arguments:**

    - `path`: what `save_checkpoint` wrote.
    - `like`: a state of the same step and optimiser, from `initial_state`.
    - `settings`: those that the checkpoint was saved with.

    **Raises:** `InputError` if the file is damaged or belongs to other settings.
    """
    meta, arrays = load_arrays(path)
    if meta.get("settings") != settings:
        raise InputError(f"{path} is a checkpoint of another run. Delete it to start afresh.")
    losses = arrays.pop("losses", None)
    if losses is None:
        raise InputError(f"{path} is not a training checkpoint: it has no losses. Delete it to start afresh.")
    raw = jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, like)

    def wrap(leaf, like):
        return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like)) if _is_key(like) else leaf

    return jax.tree.map(wrap, unflatten(arrays, raw, str(path)), like), losses


def _is_key(leaf: Any) -> bool:
    """Keys of `jax.random.key`, which cannot be written as they are."""
    return eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
