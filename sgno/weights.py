"""Saving and loading: a step is a safetensors file with its settings, grid and provenance in the metadata."""

import math
import re
from collections.abc import Mapping, Set
from os import PathLike
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.files import load_arrays, save_arrays
from sgno.registry import config_from_json
from sgno.step import Step, fault

# A state of 1 GB in float32: tables of wavenumbers are made before the arrays are looked at.
_MOST_NUMBERS = 2**28
# SGNO-X took 0.6 GB and a second for a state of 2^24 numbers before its arrays were looked at. A larger one
# is believed of a file that is not tiny: SGNO, which keeps least, has 365,627 weights in 3D, so up to 640^3.
_FREE_NUMBERS, _NUMBERS_PER_WEIGHT = 2**24, 2000
_APART = re.compile(r"(.*\.layers)\[(\d+)\](.*)")


def save(path: str | PathLike[str], step: Step, provenance: Mapping[str, Any] | None = None) -> None:
    """Write a step to a safetensors file, whole or not at all.

    **Arguments:**

    - `path`: the file to write, by convention `*.safetensors`.
    - `step`: a model with `config` and `grid`, which `sgno.load(path)` restores by itself, or any other
        `eqx.Module`, which `sgno.load(path, like=module)` restores.
    - `provenance`: plain JSON about where the weights come from, kept in the file.

    **Raises:** `InputError` for a plain function, which has no weights.
    """
    if not isinstance(step, eqx.Module):
        raise InputError(
            f"A {type(step).__name__} has no weights to save. Pass a model of sgno or another eqx.Module."
        )
    meta: dict[str, Any] = {"class": type(step).__qualname__, "provenance": dict(provenance or {})}
    config, grid = getattr(step, "config", None), getattr(step, "grid", None)
    if isinstance(config, ModelConfig) and isinstance(grid, Grid):
        meta["model"] = config.to_json()
        meta["grid"] = {"channels": grid.channels, "points": list(grid.points)}
    save_arrays(Path(path), meta, flatten(step))


def load(path: str | PathLike[str], *, like: PyTree | None = None, finite: bool = True) -> Any:
    """Read a step. Nothing in the file is executed.

    **Arguments:**

    - `path`: a file of `sgno.save`, or a `.sgno` file of version 0.1.
    - `like`: a module of the same structure, for a step that has no config of a registered kind. Everything
        but its arrays and numbers is taken from it.
    - `finite`: refuse weights that are not finite or out of range. Only who wants to look at a diverged
        training says False.

    **Returns:** the step. Models of a registered kind carry their `config` and `grid`.

    **Raises:** `InputError` if the file is damaged, of another model, or holds weights that are not finite or
        out of range.
    """
    meta, arrays = load_arrays(Path(path))
    step = unflatten(arrays, _skeleton(path, meta, arrays) if like is None else like, str(path))
    if finite and (wrong := fault(step)):
        raise InputError(
            f"{path} cannot be used: {wrong}. Train again with a lower rate, or load an earlier file."
        )
    return step


def read_provenance(path: str | PathLike[str]) -> dict[str, Any]:
    """What `sgno.save` was told about where the weights come from."""
    provenance = load_arrays(Path(path)).meta.get("provenance")
    parts = [provenance]
    for name in ("job", "task"):
        parts.append(parts[-1].get(name, {}) if isinstance(parts[-1], dict) else None)
    if not isinstance(provenance, dict) or not all(isinstance(each, dict) for each in parts):
        raise InputError(
            f"{path} is not a weights file of sgno: its provenance is none. Use a file of `sgno.save`."
        )
    return provenance


def _skeleton(path: str | PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PyTree:
    """The step that a file describes, with shapes in the place of its arrays."""
    if "model" not in meta and "class" in meta:
        raise InputError(
            f"{path} holds the arrays of a {meta['class']}, which sgno cannot build by itself. Pass like=, a "
            "module of the same structure, or give it a config and grid and use `sgno.register_model`."
        )
    try:
        config = config_from_json(meta["model"])
        grid = Grid(int(meta["grid"]["channels"]), tuple(int(n) for n in meta["grid"]["points"]))
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not a weights file of sgno: its header lacks {error}.") from error
    held = sum(array.size for array in arrays.values())
    if math.prod(grid.shape) > min(_MOST_NUMBERS, max(_FREE_NUMBERS, _NUMBERS_PER_WEIGHT * held)):
        raise InputError(
            f"{path} says it is for states of shape {grid.shape}, but holds only {held:,} weights. "
            "Use a file of `sgno.save` for a smaller grid."
        )
    like = eqx.filter_eval_shape(lambda: config.build(grid, key=jax.random.PRNGKey(0)))
    precision = {array.dtype for array in arrays.values() if array.dtype.kind == "f"}
    if precision:
        dtype = jnp.dtype(precision.pop())
        like = jax.tree.map(lambda leaf: _with_dtype(leaf, dtype), like)
    return like


def _with_dtype(leaf: Any, dtype: jnp.dtype) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.ShapeDtypeStruct(leaf.shape, dtype)
    return leaf


def flatten(tree: PyTree) -> dict[str, np.ndarray]:
    """Arrays and numbers by their path in a pytree, as numpy arrays."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves if eqx.is_array_like(leaf)}


def unflatten(arrays: Mapping[str, np.ndarray], like: PyTree, what: str) -> PyTree:
    """Put arrays back where `flatten` found them, checking names, shapes and dtypes.

    **Raises:** `InputError` naming the first array that does not fit.
    """
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(like)}
    is_stored = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array_like(leaf)
    expected = {name for name, leaf in leaves.items() if is_stored(leaf)}
    arrays = _stacked_layers(arrays, expected)
    if missing := sorted(expected - arrays.keys()):
        raise InputError(
            f"{what} lacks the array {missing[0]} (and {len(missing) - 1} more). It is of another model."
        )
    if extra := sorted(arrays.keys() - expected):
        raise InputError(
            f"{what} has an array {extra[0]} that this model does not have. It is of another model."
        )

    def put(path, leaf):
        if (name := jax.tree_util.keystr(path)) not in expected:
            return leaf
        array = arrays[name]
        own = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        if array.shape != own.shape or array.dtype != own.dtype:
            raise InputError(
                f"{what}: array {name} is {array.dtype}{list(array.shape)}, "
                f"but this model has {own.dtype}{list(own.shape)}."
            )
        if isinstance(leaf, (bool, int, float, complex)):
            return type(leaf)(array.item())
        return array if isinstance(leaf, (np.ndarray, np.generic)) else jnp.asarray(array)

    return jax.tree_util.tree_map_with_path(put, like)


def _stacked_layers(arrays: Mapping[str, np.ndarray], expected: Set[str]) -> Mapping[str, np.ndarray]:
    """Version 0.1 kept the layers of SGNO apart, `.layers[0].local.bias`; now they are one array."""
    parts: dict[str, dict[int, str]] = {}
    for name in arrays:
        if (found := _APART.fullmatch(name)) and (whole := found[1] + found[3]) in expected:
            parts.setdefault(whole, {})[int(found[2])] = name
    together = dict(arrays)
    for whole, names in parts.items():
        layers = [together.pop(names[i]) for i in sorted(names)]
        if len({(layer.shape, layer.dtype) for layer in layers}) == 1:
            together[whole] = np.stack(layers)
    return together
