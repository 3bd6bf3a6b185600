"""Operations that move, repeat, join or sum entries."""

import math
from collections.abc import Sequence
from typing import SupportsInt

import jax
import jax.numpy as jnp
import numpy as np

from sgno.errors import InputError
from sgno.export.onnx.graph import RULES, Graph, Tensor, Value, is_complex, rule


@rule("reshape", "squeeze", "expand_dims")
def _(g, x, params, out):
    return [g.reshape(part, out.shape) for part in x[0].parts]


@rule("transpose")
def _(g, x, params, out):
    return [g.transpose(part, params["permutation"]) for part in x[0].parts]


@rule("broadcast_in_dim")
def _(g, x, params, out):
    value, shape = x[0], [1] * len(out.shape)
    for axis, size in zip(params["broadcast_dimensions"], value.shape, strict=True):
        shape[axis] = size
    parts = [g.reshape(part, shape) for part in value.parts]
    if tuple(shape) == tuple(out.shape):
        return parts
    target = g.const(np.array([1, *out.shape], np.int64))
    return [g.node("Expand", [part, target]) for part in parts]


@rule("concatenate")
def _(g, x, params, out):
    return g.join(x, int(params["dimension"]))


@rule("stack")
def _(g, x, params, out):
    axis = params.get("axis", params.get("dimension", 0))
    shape = (*out.shape[:axis], 1, *out.shape[axis + 1 :])
    return g.join([g.reshaped(v, shape) for v in x], axis)


@rule("slice")
def _(g, x, params, out):
    rank = len(out.shape)
    strides = params["strides"] or (1,) * rank
    axes = np.arange(1, rank + 1)
    bounds = [
        np.array(v, np.int64) for v in (params["start_indices"], params["limit_indices"], axes, strides)
    ]
    return [g.node("Slice", [part, *map(g.const, bounds)]) for part in x[0].parts]


def _by_index(g: Graph, value: Tensor, index: np.ndarray, fill: Value | None = None) -> list[str]:
    """An operation that only moves entries, given what it does to their numbers."""
    size = math.prod(value.shape)
    if fill is None:
        return [g.take(part, size, index) for part in value.parts]
    fills = g.tensor(fill, len(value.parts)).parts
    return [g.take(part, size, index, f) for part, f in zip(value.parts, fills, strict=True)]


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


@rule("rev")
def _(g, x, params, out):
    return _by_index(g, x[0], np.flip(numbered(x[0].shape), params["dimensions"]))


@rule("pad")
def _(g, x, params, out):
    value, fill = g.tensor(x[0], 2 if is_complex(x[1]) else 1), x[1]
    index = np.asarray(jax.lax.pad(numbered(value.shape), np.int32(-1), params["padding_config"]))
    return _by_index(g, value, index, fill)


@rule("gather", "dynamic_slice")
def _(g, x, params, out):
    value, *places = x
    if not isinstance(value, Tensor) or any(isinstance(p, Tensor) for p in places):
        raise InputError("The step looks up entries by a computed index, which has no translation to ONNX.")
    name = "gather" if "dimension_numbers" in params else "dynamic_slice"
    primitive = jax.lax.gather_p if name == "gather" else jax.lax.dynamic_slice_p
    params = {**params, "fill_value": -1} if name == "gather" else params
    index = np.asarray(
        primitive.bind(jnp.asarray(numbered(value.shape)), *map(jnp.asarray, places), **params)
    )
    return _by_index(g, value, index, np.zeros((), np.float32))


@rule("scatter", "scatter-add", "scatter_add", "dynamic_update_slice")
def _(g, x, params, out):
    slices = len(x) > 3 or "update_consts" not in params
    base, update, places = (x[0], x[1], x[2:]) if slices else (x[0], x[2], x[1:2])
    if any(isinstance(p, Tensor) for p in places):
        raise InputError("The step writes to computed places, which has no translation to ONNX.")
    count = 2 if is_complex(base) or is_complex(update) else 1
    base, update = g.tensor(base, count), g.tensor(update, count)
    nowhere = jnp.full(base.shape, -1, jnp.int32)
    numbers = jnp.asarray(numbered(update.shape))
    if slices:
        index = jax.lax.dynamic_update_slice_p.bind(nowhere, numbers, *map(jnp.asarray, places), **params)
    else:
        settings = {**params, "update_jaxpr": None, "update_consts": ()}
        index = jax.lax.scatter_p.bind(nowhere, jnp.asarray(places[0]), numbers, **settings)
    index = np.asarray(index)
    moved = _by_index(g, update, index, np.zeros((), np.float32))
    if "update_consts" in params and params["update_jaxpr"] is not None:
        return [g.add(b, m) for b, m in zip(base.parts, moved, strict=True)]
    here = g.const(index >= 0)
    return [g.node("Where", [here, m, b]) for b, m in zip(base.parts, moved, strict=True)]


@rule("reduce_sum")
def _(g, x, params, out):
    return _reduced(g, x[0], params["axes"], "ReduceSum")


def _reduced(g: Graph, value: Tensor, axes: Sequence[SupportsInt], kind: str) -> list[str]:
    axes = [int(axis) + 1 for axis in axes]
    if not axes:
        return list(value.parts)
    if kind == "ReduceSum":
        places = g.const(np.array(axes, np.int64))
        return [g.node(kind, [part, places], keepdims=0) for part in value.parts]
    return [g.node(kind, [part], axes=axes, keepdims=0) for part in value.parts]


for _name, _kind in (("reduce_max", "ReduceMax"), ("reduce_min", "ReduceMin")):
    RULES[_name] = lambda g, x, params, out, kind=_kind: _reduced(g, x[0], params["axes"], kind)


@rule("reduce_prod")
def _(g, x, params, out):
    """Written out, because the factors may be complex and are few."""
    value, axes = x[0], params["axes"]
    kept = [i for i in range(len(value.shape)) if i not in axes]
    count = math.prod(value.shape[i] for i in axes)
    order = [*axes, *kept]
    rows = [g.reshape(g.transpose(part, order), (count, *out.shape)) for part in value.parts]
    factors = [
        Tensor(
            tuple(g.node("Gather", [r, g.const(np.int64(i))], axis=1) for r in rows), out.shape, value.dtype
        )
        for i in range(count)
    ]
    result = factors[0]
    for factor in factors[1:]:
        result = Tensor(tuple(RULES["mul"](g, [result, factor], {}, out)), out.shape, value.dtype)
    return result.parts
