"""Parameter counts, stated both ways."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgno.step import Step


class ParameterCount(NamedTuple):
    """`params` counts a complex number once, as the paper does for SGNO; `real` counts real numbers."""

    params: int
    real: int


def count_parameters(step: Step) -> ParameterCount:
    """Trainable numbers of a step, counted both ways.

    Complex weights are stored as two real arrays named `real` and `imag`: a pair counts once
    in `params` and twice in `real`. APEBench's baselines count real numbers either way.
    """
    leaves = [
        (path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(step) if _is_number_array(leaf)
    ]
    real = sum(leaf.size for _, leaf in leaves)
    imaginary = sum(leaf.size for path, leaf in leaves if getattr(path[-1], "name", None) == "imag")
    return ParameterCount(real - imaginary, real)


def _is_number_array(leaf: Any) -> bool:
    """Floating-point arrays, or their shapes where a step is counted without being built."""
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and jnp.issubdtype(leaf.dtype, jnp.inexact)
