"""Matrix products, convolutions, and Fourier transforms as matrix products."""

import math
from typing import Any

import jax
import numpy as np

from sgno.errors import InputError
from sgno.export.onnx.graph import Graph, Tensor, Value, plain, rule
from sgno.export.onnx.structure import numbered


@rule("dot_general")
def _(g, x, params, out):
    def real(left: Value, right: Value) -> str:
        return _product(g, left, right, params["dimension_numbers"], out.shape)

    a, b = (_split(v) for v in x)
    if len(a) == len(b) == 1:
        return [real(a[0], b[0])]
    if len(a) == 1 or len(b) == 1:
        return [real(p, q) for p in a for q in b]
    return [
        g.sub(real(a[0], b[0]), real(a[1], b[1])),
        g.add(real(a[0], b[1]), real(a[1], b[0])),
    ]


def _split(value: Value) -> list[Value]:
    """The real parts of a value, each as a value of its own."""
    if isinstance(value, Tensor):
        return [value._replace(parts=(part,)) for part in value.parts]
    return [value.real, value.imag] if np.iscomplexobj(value) else [value]


def _product(g: Graph, left: Value, right: Value, numbers: Any, shape: tuple[int, ...]) -> str:
    """MatMul of (batch, shared, rows, inner) and (batch, shared, inner, columns)."""
    (inner_l, inner_r), (shared_l, shared_r) = numbers
    free_l = [i for i in range(len(left.shape)) if i not in (*inner_l, *shared_l)]
    free_r = [i for i in range(len(right.shape)) if i not in (*inner_r, *shared_r)]
    size = lambda value, axes: math.prod(value.shape[i] for i in axes)
    shared = [left.shape[i] for i in shared_l]
    rows, inner, columns = size(left, free_l), size(left, inner_l), size(right, free_r)
    lhs = _arranged(g, left, (*shared_l, *free_l, *inner_l), (*shared, rows, inner))
    rhs = _arranged(g, right, (*shared_r, *inner_r, *free_r), (*shared, inner, columns))
    return g.reshape(g.node("MatMul", [lhs, rhs]), shape)


def _arranged(g: Graph, value: Value, order: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if isinstance(value, Tensor):
        return g.reshape(g.transpose(value.parts[0], order), shape)
    return g.const(plain(np.transpose(value, order).reshape(shape)))


@rule("conv_general_dilated")
def _(g, x, params, out):
    value, kernel = x
    if isinstance(kernel, Tensor) or params["batch_group_count"] != 1:
        raise InputError(
            "The step convolves with a kernel that depends on the state: no translation to ONNX."
        )
    spec = params["dimension_numbers"]
    order = spec.lhs_spec
    part = g.transpose(value.parts[0], order)
    batch, channels, *points = (value.shape[i] for i in order)
    shape = (batch, channels, *points)
    low, high = zip(*params["padding"], strict=True)
    # What ONNX cannot say: zeros between the points, and padding that takes points away.
    config = [
        (min(a, 0), min(b, 0), n - 1) for a, b, n in zip(low, high, params["lhs_dilation"], strict=True)
    ]
    if any(any(entry) for entry in config):
        index = np.asarray(jax.lax.pad(numbered(shape), np.int32(-1), [(0, 0, 0), (0, 0, 0), *config]))
        zero = g.tensor(np.zeros((), np.float32)).parts[0]
        part, shape = g.take(part, math.prod(shape), index, zero), index.shape
    # JAX's own axis of states joins the batch.
    part = g.reshape(part, shape[1:])
    pads = [max(n, 0) for n in (*low, *high)]
    convolved = g.node(
        "Conv",
        [part, g.const(plain(np.transpose(kernel, spec.rhs_spec)))],
        strides=list(params["window_strides"]),
        dilations=list(params["rhs_dilation"]),
        pads=pads,
        group=params["feature_group_count"],
    )
    arranged = tuple(out.shape[i] for i in spec.out_spec)
    return [g.transpose(g.reshape(convolved, arranged), np.argsort(spec.out_spec))]


@rule("fft")
def _(g, x, params, out):
    """One matrix for each axis: cos and sin of 2 pi k x / n."""
    kind, lengths = jax.lax.FftType(params["fft_type"]).name, params["fft_lengths"]
    value = x[0]
    axes = range(len(value.shape) - len(lengths), len(value.shape))
    if kind == "RFFT":
        last = axes[-1]
        angle = _angles(lengths[-1])[:, : lengths[-1] // 2 + 1]
        parts = [g.along(value.parts[0], value.shape, last, m) for m in (np.cos(angle), -np.sin(angle))]
        for axis, n in zip(axes[:-1], lengths[:-1], strict=True):
            parts = _fourier(g, parts, out.shape, axis, _angles(n), -1.0)
        return parts
    parts, shape = g.tensor(value, 2).parts, value.shape
    if kind == "FFT":
        for axis, n in zip(axes, lengths, strict=True):
            parts = _fourier(g, parts, shape, axis, _angles(n), -1.0)
        return parts
    inner = axes if kind == "IFFT" else axes[:-1]
    for axis, n in zip(inner, lengths, strict=False):
        parts = _fourier(g, parts, shape, axis, _angles(n), 1.0, 1 / n)
    if kind == "IFFT":
        return parts
    n = lengths[-1]
    angle = _angles(n)[: n // 2 + 1]
    weight = np.full((n // 2 + 1, 1), 2.0 / n)
    weight[0] = 1 / n
    if n % 2 == 0:
        weight[-1] = 1 / n
    real = g.along(parts[0], shape, axes[-1], weight * np.cos(angle))
    return [g.sub(real, g.along(parts[1], shape, axes[-1], weight * np.sin(angle)))]


def _angles(n: int) -> np.ndarray:
    return 2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n


def _fourier(g, parts, shape, axis: int, angle: np.ndarray, sign: float, scale: float = 1.0) -> list[str]:
    cos, sin = scale * np.cos(angle), sign * scale * np.sin(angle)
    apply = lambda part, matrix: g.along(part, shape, axis, matrix)
    real, imag = parts
    return [
        g.sub(apply(real, cos), apply(imag, sin)),
        g.add(apply(real, sin), apply(imag, cos)),
    ]
