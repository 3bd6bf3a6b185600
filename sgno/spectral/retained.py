"""The few lowest Fourier modes of a field, which SGNO retains, and the field that they make.

A real field on a periodic grid is represented by `m` modes along its last axis, `0..m-1` (the rest follow
from conjugate symmetry), and `2m` along every other axis, in the order `0..m-1, -m..-1`: `2^(d-1) m^d` modes
in all.

A field is `(C, B, *N)`: channels, batch, grid. Its retained coefficients are one real array `(*K, 2, C, B)`,
modes first and then real and imaginary parts, so that a complex matrix per mode is one real product per mode
and no transpose is ever needed. They are unnormalised (`sum_x u(x) exp(-i k x)`).

Retained modes are few, so that two small real matrix products along each axis beat the FFT at the sizes of
the paper; the FFT takes over where many modes are kept.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sgno.errors import InputError

# From this many modes per axis on the FFT was faster.
FFT_FROM_MODES = 96


def retained_shape(num_spatial_dims: int, num_modes: int) -> tuple[int, ...]:
    """The shape of one channel's retained coefficients, `(2m, ..., 2m, m)`."""
    return (2 * num_modes,) * (num_spatial_dims - 1) + (num_modes,)


def _along(num_modes: int, *, last: bool) -> np.ndarray:
    """The signed mode numbers along one axis, in storage order."""
    if last:
        return np.arange(num_modes)
    return np.concatenate([np.arange(num_modes), np.arange(-num_modes, 0)])


def retained_modes(num_spatial_dims: int, num_modes: int) -> np.ndarray:
    """Signed mode numbers of every retained mode, `(d, *K)`."""
    axes = [_along(num_modes, last=i == num_spatial_dims - 1) for i in range(num_spatial_dims)]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def radius(num_spatial_dims: int, num_modes: int) -> np.ndarray:
    """rho(k) = || (|k_i| / (m - 1))_i ||_2 / sqrt(d), on the retained modes.

    The true |k_i| is used on negative frequencies, so that rho(k) = rho(-k).
    """
    scaled = np.abs(retained_modes(num_spatial_dims, num_modes)) / max(num_modes - 1, 1)
    return np.linalg.norm(scaled, axis=0) / np.sqrt(num_spatial_dims)


def check_enough_points(points: tuple[int, ...], num_modes: int) -> None:
    """Raise unless the grid carries every retained mode without aliasing."""
    if min(points) < 2 * num_modes:
        raise InputError(
            f"modes={num_modes} needs at least {2 * num_modes} points per axis, but the grid has "
            f"{'x'.join(map(str, points))}. Use fewer modes or a finer grid."
        )


def to_retained(
    v: Float[Array, "channels batch *points"], num_modes: int
) -> Float[Array, "*modes 2 channels batch"]:
    """Retained Fourier coefficients of `v`.

    **Arguments:**

    - `v`: a real field, `(C, B, *N)` with at least `2 num_modes` points per axis.
    - `num_modes`: `m`, the number of modes kept on each half axis.

    **Returns:**

    Real and imaginary parts, `(*K, 2, C, B)`.
    """
    return (_to_modes_fft if num_modes >= FFT_FROM_MODES else _to_modes_matrix)(v, num_modes)


def from_retained(
    c: Float[Array, "*modes 2 channels batch"], points: tuple[int, ...]
) -> Float[Array, "channels batch *points"]:
    """The real field whose retained coefficients are `c` and whose others are zero.

    As with `numpy.fft.irfftn`, coefficients at mode 0 of the last axis count once, all
    others twice, and only the real part is kept.
    """
    many = c.shape[len(points) - 1] >= FFT_FROM_MODES
    return (_from_modes_fft if many else _from_modes_matrix)(c, points)


def _waves(num_points: int, num_modes: int) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of 2 pi k x / N, each `(N, num_modes)`, for k = 0..num_modes-1."""
    phase = (np.arange(num_points)[:, None] * np.arange(num_modes)[None]) % num_points
    angle = 2 * np.pi * phase / num_points
    return np.cos(angle), np.sin(angle)


def _contract_last(v: Array, matrix: np.ndarray) -> Array:
    """sum_x v[..., x] matrix[x, ...], with the other axes of the matrix leading."""
    w = jnp.asarray(matrix, v.dtype)
    return jax.lax.dot_general(w, v, (((0,), (v.ndim - 1,)), ((), ())))


def _contract_first(c: Array, matrix: np.ndarray) -> Array:
    """The sum over the leading axes that the matrix `(..., x)` shares with `c`; x becomes the last axis."""
    w = jnp.asarray(matrix, c.dtype)
    shared = tuple(range(w.ndim - 1))
    return jax.lax.dot_general(c, w, ((shared, shared), ((), ())))


def _to_modes_matrix(v: Array, m: int) -> Array:
    cos, sin = _waves(v.shape[-1], m)
    c = _contract_last(v, np.stack([cos, -sin], axis=-1))
    for a in range(1, v.ndim - 2):
        # Real and imaginary parts are along axis a, behind the modes of the a last axes.
        cos, sin = _waves(c.shape[-1], m + 1)
        # Modes k and -k share their cosine and sine products: half the work of a plain DFT.
        with_cos, with_sin = _contract_last(c, np.stack([cos, sin], axis=1))
        (cos_re, cos_im), (sin_re, sin_im) = _parts(with_cos, a + 1), _parts(with_sin, a + 1)
        positive = jnp.stack([cos_re + sin_im, cos_im - sin_re], axis=a + 1)[:m]
        negative = jnp.stack([cos_re - sin_im, cos_im + sin_re], axis=a + 1)[:0:-1]
        c = jnp.concatenate([positive, negative])
    return c


def _from_modes_matrix(c: Array, points: tuple[int, ...]) -> Array:
    m = c.shape[len(points) - 1]
    for a, n in zip(range(len(points), 1, -1), points[:-1], strict=True):
        # Even and odd parts in k, on modes 0..m: mode 0 is only among c[:m], mode m only among the others.
        later = [(0, 0)] * (c.ndim - 1)
        positive = jnp.pad(c[:m], [(0, 1), *later])
        negative = jnp.pad(c[: m - 1 : -1], [(1, 0), *later])
        (even_re, even_im), (odd_re, odd_im) = (
            _parts(positive + negative, a),
            _parts(positive - negative, a),
        )
        # (a + ib) e^{ikx} summed over +-k: re = even_re cos - odd_im sin, im = even_im cos + odd_re sin.
        with_cos = jnp.stack([even_re, even_im], axis=a)
        with_sin = jnp.stack([-odd_im, odd_re], axis=a)
        cos, sin = _waves(n, m + 1)
        c = _contract_first(jnp.stack([with_cos, with_sin]), np.stack([cos.T, sin.T]) / n)
    n = points[-1]
    cos, sin = _waves(n, m)
    weight = np.where(np.arange(m) == 0, 1.0, 2.0) / n
    return _contract_first(c, np.stack([cos * weight, -sin * weight], axis=-1).transpose(1, 2, 0))


def _parts(c: Array, axis: int) -> tuple[Array, Array]:
    """Real and imaginary parts, which lie along `axis`."""
    return (
        jax.lax.index_in_dim(c, 0, axis, keepdims=False),
        jax.lax.index_in_dim(c, 1, axis, keepdims=False),
    )


def _retained(points: tuple[int, ...], m: int) -> tuple[np.ndarray, ...]:
    """Positions of the retained modes inside the array of `rfftn`, as an open mesh."""
    last = len(points) - 1
    return np.ix_(*(_along(m, last=i == last) % n for i, n in enumerate(points)))


def _to_modes_fft(v: Array, m: int) -> Array:
    num_spatial_dims = v.ndim - 2
    axes = tuple(range(2, v.ndim))
    c = jnp.fft.rfftn(v, axes=axes)[(slice(None), slice(None), *_retained(v.shape[2:], m))]
    c = jnp.moveaxis(c, (0, 1), (num_spatial_dims, num_spatial_dims + 1))
    return jnp.stack([c.real, c.imag], axis=num_spatial_dims)


def _from_modes_fft(c: Array, points: tuple[int, ...]) -> Array:
    d = len(points)
    m = c.shape[d - 1]
    z = jnp.moveaxis(jax.lax.complex(*_parts(c, d)), (d, d + 1), (0, 1))
    full = jnp.zeros((*z.shape[:2], *points[:-1], points[-1] // 2 + 1), z.dtype)
    full = full.at[(slice(None), slice(None), *_retained(points, m))].set(z)
    return jnp.fft.irfftn(full, s=points, axes=tuple(range(2, 2 + d)))
