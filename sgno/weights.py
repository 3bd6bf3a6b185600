"""A trained step in one file: a JSON line (model, grid, provenance), then its arrays."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.files import load_arrays, save_arrays
from sgno.leaves import flatten, unflatten
from sgno.registry import config_from_json
from sgno.step import Step

# A state of 1 GB in float32: tables of wavenumbers are made before the arrays are looked at.
_MOST_NUMBERS = 2**28


class Weights(NamedTuple):
    """A step as it was saved, with what it was made from."""

    step: Step
    config: ModelConfig
    grid: Grid
    provenance: dict[str, Any]


def save_weights(
    path: Path, step: Step, config: ModelConfig, grid: Grid, provenance: Mapping[str, Any]
) -> None:
    """Write a step, whole or not at all."""
    meta = {
        "model": config.to_json(),
        "grid": {"channels": grid.channels, "points": list(grid.points)},
        "provenance": dict(provenance),
    }
    save_arrays(path, meta, flatten(step))


def load_weights(path: Path) -> Weights:
    """Read a step. Nothing in the file is executed.

    **Raises:** `InputError` if the file is damaged, of another version or of another model.
    """
    meta, arrays = load_arrays(path)
    try:
        config = config_from_json(meta["model"])
        grid = Grid(int(meta["grid"]["channels"]), tuple(int(n) for n in meta["grid"]["points"]))
        provenance = dict(meta["provenance"])
        if math.prod(grid.shape) > _MOST_NUMBERS:
            raise InputError(
                f"{path} is for states of shape {grid.shape}, larger than any state that is read."
            )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a weights file of sgno: its header lacks {error}.") from error
    like = eqx.filter_eval_shape(lambda: config.build(grid, key=jax.random.PRNGKey(0)))
    precision = {array.dtype for array in arrays.values() if array.dtype.kind == "f"}
    if precision:
        dtype = jnp.dtype(precision.pop())
        like = jax.tree.map(lambda s: _with_dtype(s, dtype), like)
    return Weights(unflatten(arrays, like, str(path)), config, grid, provenance)


def _with_dtype(leaf: Any, dtype: jnp.dtype) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.ShapeDtypeStruct(leaf.shape, dtype)
    return leaf
