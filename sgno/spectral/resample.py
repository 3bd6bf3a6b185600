"""Band-limited resampling of periodic fields, and maps made free of aliasing by it.

A field on n points is read as the trigonometric polynomial of its modes |k| < n/2. The Nyquist mode of an
even grid is left out: it stands for k and -k at once and cannot be shifted. Resampling is then a small real
matrix per axis, and shifting by a fraction of a cell is exact.
"""

from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@cache
def interpolation_matrix(given: int, wanted: int, shift: float = 0.0) -> np.ndarray:
    """R[i, j] = 1/n (1 + 2 sum_{0 < k < m/2} cos 2 pi k ((i + shift)/n' - j/n)), with m = min(n, n').

    **Arguments:**

    - `given`: the number of points n that a field is known at.
    - `wanted`: the number of points n' at which it is wanted.
    - `shift`: by how many cells of the wanted grid the wanted points are moved.

    **Returns:** `R` of shape `(n', n)`, in float64.
    """
    x = (np.arange(wanted) + shift)[:, None] / wanted - np.arange(given)[None, :] / given
    k = np.arange(1, (min(given, wanted) + 1) // 2)
    return (1 + 2 * np.cos(2 * np.pi * k[:, None, None] * x).sum(axis=0)) / given


def along(matrix: np.ndarray, v: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Apply a real matrix along one axis."""
    R = jnp.asarray(matrix, v.dtype)
    if axis in (-1, v.ndim - 1):
        return v @ R.T
    return jnp.moveaxis(jnp.tensordot(R, v, axes=(1, axis)), 0, axis)


def resample(v: Float[Array, "..."], points: tuple[int, ...]) -> Float[Array, "..."]:
    """The same trigonometric polynomial on another grid; modes beyond the coarser one are cut.

    **Arguments:**

    - `v`: a field whose last `len(points)` axes are the grid.
    - `points`: the wanted number of points along each of them.
    """
    for axis, n in enumerate(points, start=v.ndim - len(points)):
        if v.shape[axis] != n:
            v = along(interpolation_matrix(v.shape[axis], n), v, axis)
    return v


def without_aliasing(
    f: Callable[[Array], Array], v: Float[Array, "..."], num_spatial_dims: int
) -> Float[Array, "..."]:
    """Sample `v` twice as finely along each axis, apply `f`, cut the new modes and sample as before.

    The finer grid is the grid and its copies shifted by half a cell, so with `S` the half-cell shift, `S^T`
    its inverse and `P` the cut of the Nyquist mode this is, axis by axis,

        (P f(v) + S^T f(S v)) / 2,

    in which `f` may be any map that commutes with shifts by whole cells along the grid, not only a pointwise
    one: with `f = conv after activation after conv` the shifts act on the channels outside, which may be
    fewer, and nothing is ever stored on the finer grid.

    **Arguments:**

    - `f`: maps fields to fields on the same grid; called once for each of the `2^d` copies.
    - `v`: a field whose last `num_spatial_dims` axes are the grid.
    """
    for axis in range(-num_spatial_dims, 0):
        f = _mean_over_half_shift(f, axis)
    return f(v)


def _mean_over_half_shift(f: Callable[[Array], Array], axis: int) -> Callable[[Array], Array]:
    def mean(v: Array) -> Array:
        n = v.shape[axis]
        forward = interpolation_matrix(n, n, 0.5)
        w, w_shifted = f(v), f(along(forward, v, v.ndim + axis))
        return 0.5 * (_cut_nyquist(w, axis) + along(forward.T, w_shifted, v.ndim + axis))

    return mean


def _cut_nyquist(v: Array, axis: int) -> Array:
    n = v.shape[axis]
    if n % 2:
        return v
    wave = jnp.asarray((-1.0) ** np.arange(n), v.dtype).reshape(-1, *(1,) * (-axis - 1))
    return v - wave * jnp.mean(wave * v, axis=axis, keepdims=True)
