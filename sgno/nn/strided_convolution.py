"""Periodic convolutions between a grid and one `stride` times coarser, written as matrix products.

The way down computes every `stride`-th point of a convolution alone, the way up multiplies no inserted zeros:
both do `stride^d` times less work than a convolution on the fine grid. Each is the other's transpose.
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sgno.nn.convolution import check_odd, reversed_kernel


def _gather(x: Array, kernel: tuple[int, ...], stride: int) -> Array:
    """`x_c(stride i + t - centre)` for every tap t: `(taps * C, batch and coarse points)`."""
    reach = [(0, 0), (0, 0), *((k // 2, k // 2) for k in kernel)]
    padded = jnp.pad(x, reach, mode="wrap")
    taps = [
        padded[(..., *(slice(t, t + n, stride) for t, n in zip(tap, x.shape[2:], strict=True)))]
        for tap in itertools.product(*map(range, kernel))
    ]
    return jnp.concatenate(taps, axis=0).reshape(math.prod(kernel) * len(x), -1)


def _taps_of(phase: int, size: int, stride: int) -> Iterator[tuple[int, int]]:
    """The taps t of one axis that reach a coarse point from `stride i + phase`, and which: `i + shift`."""
    for t in range(size):
        if (phase + t - size // 2) % stride == 0:
            yield t, (phase + t - size // 2) // stride


def _scatter(y: Array, stride: int) -> Array:
    """Sum `(*kernel, channels, B, *coarse)` into the fine grid, whose phases are sums of shifted taps."""
    d = (y.ndim - 2) // 2
    kernel, coarse = y.shape[:d], y.shape[d + 2 :]
    axes = tuple(range(2, 2 + d))
    phases = []
    for phase in itertools.product(range(stride), repeat=d):
        reached = (_taps_of(p, k, stride) for p, k in zip(phase, kernel, strict=True))
        parts = [jnp.zeros(y.shape[d:], y.dtype)]
        for choice in itertools.product(*reached):
            tap, shift = zip(*choice, strict=True)
            parts.append(jnp.roll(y[tap], [-s for s in shift], axes))
        phases.append(reduce(jnp.add, parts))
    fine = jnp.stack(phases).reshape(*(stride,) * d, *y.shape[d:])
    order = (d, d + 1, *itertools.chain(*((d + 2 + axis, axis) for axis in range(d))))
    return jnp.transpose(fine, order).reshape(*y.shape[d : d + 2], *(stride * n for n in coarse))


def _down(x: Array, w: Array, stride: int) -> Array:
    if any(n % stride for n in x.shape[2:]):
        raise ValueError(
            f"A convolution with stride {stride} needs a multiple of {stride} points along every axis, but "
            f"the grid has {'x'.join(map(str, x.shape[2:]))}."
        )
    check_odd(w)
    matrix = jnp.moveaxis(w, 1, -1).reshape(len(w), -1)
    coarse = (n // stride for n in x.shape[2:])
    return (matrix @ _gather(x, w.shape[2:], stride)).reshape(len(w), x.shape[1], *coarse)


def _up(x: Array, w: Array, stride: int) -> Array:
    check_odd(w)
    matrix = jnp.moveaxis(w, (0, 1), (-2, -1)).reshape(-1, len(x))
    y = matrix @ x.reshape(len(x), -1)
    return _scatter(y.reshape(*w.shape[2:], len(w), *x.shape[1:]), stride)


def _down_weights(x: Array, g: Array, w: Array, stride: int) -> Array:
    """The gradient of `sum(g * down(x, w))` by w."""
    product = g.reshape(len(g), -1) @ _gather(x, w.shape[2:], stride).T
    return jnp.moveaxis(product.reshape(len(g), *w.shape[2:], len(x)), -1, 1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def strided_convolution(
    x: Float[Array, "channels batch *fine"],
    w: Float[Array, "channels_out channels_in *kernel"],
    stride: int,
) -> Float[Array, "channels_out batch *coarse"]:
    """y_o(i) = sum_{c, t} w_oc(t) x_c(stride i + t - centre), indices modulo the fine grid.

    **Arguments:**

    - `x`: channels first, then the batch; `stride` divides the points of every axis.
    - `w`: a kernel with an odd number of taps along each axis.
    - `stride`: how many fine points lie on a coarse one.

    **Raises:** `ValueError` if `stride` does not divide the points or the kernel has an even number of taps.
    """
    return _down(x, w, stride)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def transposed_convolution(
    x: Float[Array, "channels batch *coarse"],
    w: Float[Array, "channels_out channels_in *kernel"],
    stride: int,
) -> Float[Array, "channels_out batch *fine"]:
    """y_o(n) = sum_{c, t} w_oc(t) z_c(n + t - centre) with z = x on every `stride`-th point and 0 between.

    **Arguments:** as of `strided_convolution`, with `x` on the coarse grid.
    """
    return _up(x, w, stride)


def _backward_down(stride: int, residuals, g: Array):
    x, w = residuals
    return _up(g, reversed_kernel(w), stride), _down_weights(x, g, w, stride)


def _backward_up(stride: int, residuals, g: Array):
    x, w = residuals
    # sum(g * up(x, w)) = sum(x * down(g, reversed w))
    reverse = reversed_kernel(w)
    return _down(g, reverse, stride), reversed_kernel(_down_weights(g, x, reverse, stride))


strided_convolution.defvjp(lambda x, w, stride: (_down(x, w, stride), (x, w)), _backward_down)
transposed_convolution.defvjp(lambda x, w, stride: (_up(x, w, stride), (x, w)), _backward_up)
