"""Band-limited resampling of periodic fields, with which an activation is made (nearly) free of aliasing.

A field on n points is read as the trigonometric polynomial of its modes |k| < n/2. The Nyquist mode of an
even grid is left out: it stands for k and -k at once and cannot be shifted. Resampling is then a small real
matrix per axis, and shifting by a fraction of a cell is exact.
"""

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
    if axis == v.ndim - 1:
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


def half_shifted_copies(v: Float[Array, "channels batch *points"]) -> Float[Array, "channels copies *points"]:
    """The field on a grid twice as fine along every axis, as `2^d` copies on the grid itself.

    The finer grid is the grid and the grid moved by half a cell, along each axis in turn, so the copies are
    kept side by side along the batch, each shifted by another corner of half a cell.
    """
    for axis, n in enumerate(v.shape[2:], start=2):
        v = jnp.concatenate([v, along(interpolation_matrix(n, n, 0.5), v, axis)], axis=1)
    return v


def mean_of_copies(w: Float[Array, "channels copies *points"]) -> Float[Array, "channels batch *points"]:
    """Cut a field on the finer grid, given as `half_shifted_copies`, back to the band of the grid.

    With `S` the half-cell shift and `P` the cut of the Nyquist mode this is `(P w_0 + S^T w_1) / 2` along
    each axis. For any map `f` that commutes with shifts by whole cells, `mean_of_copies(f(copies))` is `f`
    applied on the finer grid and filtered: not for pointwise ones only, so that convolutions around an
    activation may be taken inside, and the shifts act on the channels outside, which may be fewer.
    """
    for axis in range(w.ndim - 1, 1, -1):
        n = w.shape[axis]
        kept, shifted = jnp.split(w, 2, axis=1)
        back = interpolation_matrix(n, n, 0.5).T
        w = 0.5 * (_cut_nyquist(kept, axis) + along(back, shifted, axis))
    return w


def _cut_nyquist(v: Array, axis: int) -> Array:
    n = v.shape[axis]
    if n % 2:
        return v
    wave = jnp.asarray((-1.0) ** np.arange(n), v.dtype).reshape(-1, *(1,) * (v.ndim - axis - 1))
    return v - wave * jnp.mean(wave * v, axis=axis, keepdims=True)
