"""Periodic convolutions: XLA's own, and as matrix products, which are faster on a CPU.

`periodic_convolution` and its strided and transposed forms have a reverse rule of their own and none for
forward mode, so they are for `fast_batch`; `xla_convolution` is what a user differentiates.

Inside a loop of updates XLA's convolution reaches a small part of the rate of its matrix product, which
stays high as long as the operands stay in the cache (`make bench` compares whole updates). So the
taps of some axes are gathered into rows (contiguous copies), one product applies all taps at once, and the
taps of the other axes are summed afterwards (shifted reads). Copies are what costs, so a thin input is
gathered along every axis, a thin output summed along every axis, and for equal channels only the last axis
is summed. Large arrays are worked on slab by slab, and the backward pass gathers again instead of keeping
the rows.

Convolutions between a grid and one `stride` times coarser do `stride^d` times less work than one on the
fine grid: the way down computes every `stride`-th point alone, the way up multiplies no inserted zeros. Each
is the other's transpose.
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# What is gathered or summed of a slab takes about this many bytes, so that it stays in the cache of a core.
_SLAB_BYTES = 2**22
# What a shifted sum costs, measured in copies of as many numbers.
_SUM_COST = 2.3


def xla_convolution(
    x: Float[Array, "channels batch *points"], w: Float[Array, "channels_out channels_in *kernel"]
) -> Float[Array, "channels_out batch *points"]:
    """`periodic_convolution` without dilation by XLA, differentiable in both modes."""
    check_odd(w)
    space = "DHW"[3 - (w.ndim - 2) :]
    padded = _pad(x, tuple(k // 2 for k in w.shape[2:]))
    layouts = (f"CN{space}", f"OI{space}", f"CN{space}")
    return lax.conv_general_dilated(padded, w, (1,) * len(space), "VALID", dimension_numbers=layouts)


def _pad(x: Array, reach: tuple[int, ...]) -> Array:
    """`(C, B, *N)` continued periodically by `reach` points at both ends of each axis."""
    return jnp.pad(x, ((0, 0), (0, 0), *((r, r) for r in reach)), mode="wrap")


def _num_slabs(row_bytes: int, n: int) -> int:
    """Into how many equal slabs an axis of `n` points is cut to keep each near `_SLAB_BYTES`."""
    return next(m for m in range(1, n + 1) if n % m == 0 and (m * _SLAB_BYTES >= row_bytes or m == n))


class _Plan:
    """The shapes of one convolution: `(C, B, *N)` with a kernel `(O, C, *k)`.

    Taps of the first `split` axes are gathered before the product, `gathered` copies of C channels; those of
    the others are summed after it, `summed` copies of O channels.
    """

    def __init__(self, x: Array, w: Array, dilation: int):
        self.C, self.B, *points = x.shape
        self.points = tuple(points)
        self.O, _, *kernel = w.shape
        self.kernel = tuple(kernel)
        self.dilation = dilation
        self.reach = tuple((k - 1) // 2 * dilation for k in kernel)
        d = len(kernel)
        self.split = min((d, d - 1, 0), key=self._cost)
        self.gathered, self.summed = self._copies(self.split)
        row_bytes = 4 * max(self.gathered * self.C, self.summed * self.O) * self.B * math.prod(points)
        # One-dimensional grids fit whole.
        self.slabs = _num_slabs(row_bytes, points[0]) if d > 1 else 1
        self.size = points[0] // self.slabs

    def _copies(self, split: int) -> tuple[int, int]:
        return math.prod(self.kernel[:split]), math.prod(self.kernel[split:])

    def _cost(self, split: int) -> float:
        """Numbers moved by copies and sums, which reach over the padding of the axes that are summed."""
        gathered, summed = self._copies(split)
        padded = [n + 2 * r for n, r in zip(self.points, self.reach, strict=True)]
        size = math.prod((*self.points[:split], *padded[split:]))
        return size * (gathered * self.C + _SUM_COST * summed * self.O)

    def matrix(self, w: Array) -> Array:
        """The kernel as `(summed * O, gathered * C)`."""
        axes = range(2, w.ndim)
        order = (*axes[self.split :], 0, *axes[: self.split], 1)
        return jnp.transpose(w, order).reshape(self.summed * self.O, -1)

    def kernel_of(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        s, d = self.split, len(self.kernel)
        w = matrix.reshape(*self.kernel[s:], self.O, *self.kernel[:s], self.C)
        return jnp.transpose(w, (d - s, d + 1, *range(d - s + 1, d + 1), *range(d - s)))

    def _tap_slices(self, axes: range) -> list[tuple[slice, ...]]:
        """For every tap of these axes, where it reads; the other axes are taken whole."""
        sizes = (self.size, *self.points[1:])
        choices = (range(self.kernel[axis]) if axis in axes else (None,) for axis in range(len(sizes)))
        return [
            tuple(
                slice(None) if t is None else slice(t * self.dilation, t * self.dilation + n)
                for t, n in zip(taps, sizes, strict=True)
            )
            for taps in itertools.product(*choices)
        ]

    def rows(self, padded: Array, slab) -> Array:
        """The input of every gathered tap: `(gathered * C, B, *slab)`, still padded along the other axes."""
        block = padded
        if self.slabs > 1:
            wanted = self.size + 2 * self.reach[0]
            block = lax.dynamic_slice_in_dim(padded, slab * self.size, wanted, axis=2)
        taps = self._tap_slices(range(self.split))
        return jnp.concatenate([block[(..., *tap)] for tap in taps], axis=0)

    def sum_taps(self, y: Array) -> Array:
        """Sum over the taps that were not gathered: `(summed, O, B, *padded slab) -> (O, B, *slab)`."""
        taps = self._tap_slices(range(self.split, len(self.points)))
        return reduce(jnp.add, [part[(..., *tap)] for part, tap in zip(y, taps, strict=True)])

    def spread_taps(self, g: Array) -> Array:
        """The adjoint of `sum_taps`."""
        sizes = (self.size, *self.points[1:])
        spread = []
        for tap in self._tap_slices(range(self.split, len(self.points))):
            ends = [
                (0, 0) if t.start is None else (t.start, n + 2 * reach - t.stop)
                for t, n, reach in zip(tap, sizes, self.reach, strict=True)
            ]
            spread.append(jnp.pad(g, ((0, 0), (0, 0), *ends)))
        return jnp.stack(spread)


def check_odd(w: Array) -> None:
    """**Raises:** `ValueError` if a kernel has no centre."""
    if any(k % 2 == 0 for k in w.shape[2:]):
        raise ValueError(f"A centred kernel has an odd number of taps per axis, but w has shape {w.shape}.")


def reversed_kernel(w: Array) -> Array:
    """The kernel of the transpose of a periodic convolution, which is a periodic convolution too."""
    return jnp.flip(w.swapaxes(0, 1), axis=tuple(range(2, w.ndim)))


def _correlate(x: Array, w: Array, dilation: int) -> Array:
    plan = _Plan(x, w, dilation)
    matrix, padded = plan.matrix(w), _pad(x, plan.reach)

    def slab(i):
        rows = plan.rows(padded, i)
        y = matrix @ rows.reshape(rows.shape[0], -1)
        return plan.sum_taps(y.reshape(plan.summed, plan.O, *rows.shape[1:]))

    if plan.slabs == 1:
        return slab(0)
    return lax.fori_loop(
        0,
        plan.slabs,
        lambda i, out: lax.dynamic_update_slice_in_dim(out, slab(i), i * plan.size, axis=2),
        jnp.zeros((plan.O, plan.B, *plan.points), x.dtype),
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(x: Array, w: Array, dilation: int) -> Array:
    return _correlate(x, w, dilation)


def _forward(x: Array, w: Array, dilation: int):
    return _correlate(x, w, dilation), (x, w)


def _backward(dilation: int, residuals, g: Array):
    x, w = residuals
    g_x = _correlate(g, reversed_kernel(w), dilation)
    plan = _Plan(x, w, dilation)
    padded = _pad(x, plan.reach)

    def slab(i):
        rows = plan.rows(padded, i)
        g_slab = g if plan.slabs == 1 else lax.dynamic_slice_in_dim(g, i * plan.size, plan.size, axis=2)
        spread = plan.spread_taps(g_slab)
        return spread.reshape(plan.summed * plan.O, -1) @ rows.reshape(rows.shape[0], -1).T

    if plan.slabs == 1:
        g_matrix = slab(0)
    else:
        shape = (plan.summed * plan.O, plan.gathered * plan.C)
        g_matrix = lax.fori_loop(0, plan.slabs, lambda i, acc: acc + slab(i), jnp.zeros(shape, x.dtype))
    return g_x, plan.kernel_of(g_matrix)


_convolve.defvjp(_forward, _backward)


def periodic_convolution(
    x: Float[Array, "channels batch *points"],
    w: Float[Array, "channels_out channels_in *kernel"],
    *,
    dilation: int = 1,
) -> Float[Array, "channels_out batch *points"]:
    """y_o(n) = sum_{c, t} w_oc(t) x_c(n + dilation (t - centre)), indices modulo the grid.

    **Arguments:**

    - `x`: channels first, then the batch: the layout in which a convolution is one plain matrix product.
    - `w`: a kernel with an odd number of taps along each axis.
    - `dilation`: the distance between taps, in points.

    **Raises:** `ValueError` if the kernel has an even number of taps or does not fit the input.
    """
    check_odd(w)
    if w.ndim != x.ndim or w.shape[1] != x.shape[0]:
        raise ValueError(
            f"A kernel of shape {w.shape} (channels out, channels in, *taps) does not fit an input of shape "
            f"{x.shape} (channels in, batch, *points)."
        )
    return _convolve(x, w, dilation)


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
