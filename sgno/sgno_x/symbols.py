"""Wavenumbers of the real FFT and the smooth symbols that closures are made of.

Fields are on the unit torus scaled to 2 pi, so that wavenumbers are whole numbers; a domain's length is
absorbed by the multipliers. Transforms are normalised forward: coefficients are amplitudes, equal on every
grid that resolves the field.
"""

import itertools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float


def mode_shape(points: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one channel's coefficients in the real FFT."""
    return (*points[:-1], points[-1] // 2 + 1)


def wavenumbers(points: tuple[int, ...]) -> np.ndarray:
    """Signed wavenumbers of every mode of the real FFT, `(d, *modes)`."""
    axes = [np.fft.fftfreq(n, 1 / n).round().astype(int) for n in points[:-1]]
    axes.append(np.arange(points[-1] // 2 + 1))
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def multiplicity(points: tuple[int, ...]) -> np.ndarray:
    """How many modes of the full FFT each stored mode stands for: 2, but 1 at 0 and at Nyquist."""
    last = np.full(points[-1] // 2 + 1, 2.0)
    last[0] = 1
    if points[-1] % 2 == 0:
        last[-1] = 1
    return np.broadcast_to(last, mode_shape(points))


def below(points: tuple[int, ...], cutoff: tuple[int, ...]) -> np.ndarray:
    """Where |k_i| <= cutoff_i along every axis."""
    k = np.abs(wavenumbers(points))
    return np.all([k_i <= c for k_i, c in zip(k, cutoff, strict=True)], axis=0)


def to_modes(
    u: Float[Array, "*batch_and_points"], num_spatial_dims: int
) -> Complex[Array, "*batch_and_modes"]:
    """Amplitudes of a real field along its last `d` axes."""
    return jnp.fft.rfftn(u, axes=tuple(range(-num_spatial_dims, 0)), norm="forward")


def to_points(
    v: Complex[Array, "*batch_and_modes"], points: tuple[int, ...]
) -> Float[Array, "*batch_and_points"]:
    """The real field with these amplitudes."""
    return jnp.fft.irfftn(v, s=points, axes=tuple(range(-len(points), 0)), norm="forward")


def symbol_names(num_spatial_dims: int) -> tuple[str, ...]:
    """The symbols that factors are made of: `1`, `d_i`, and the Laplacian (1D) or `d_i Laplacian^-1`."""
    axes = range(num_spatial_dims)
    further = ["lap"] if num_spatial_dims == 1 else [f"d{i}inv" for i in axes]
    return ("1", *(f"d{i}" for i in axes), *further)


def symbol(name: str, points: tuple[int, ...]) -> np.ndarray:
    """A symbol by name on the modes of a grid: `1`, `d0` (i k_0), `lap` (-|k|²) or `d0inv` (-i k_0 / |k|²).

    Odd symbols vanish at Nyquist, where a real grid function has no odd derivative.
    """
    k = wavenumbers(points)
    k_squared = (k * k).sum(0).astype(float)
    if name == "1":
        return np.ones(k_squared.shape, complex)
    if name == "lap":
        return -k_squared.astype(complex)
    axis = int(name[1])
    odd = 1j * k[axis] * (2 * np.abs(k[axis]) != points[axis])
    return -odd / np.maximum(k_squared, 1) if name.endswith("inv") else odd


def monomials(points: tuple[int, ...], order: int, unit: float) -> np.ndarray:
    """(i k / unit)^a for every multi-index of at most this order, `(count, *modes)`."""
    k = 1j * wavenumbers(points) / unit
    d = len(points)
    indices = [a for a in itertools.product(range(order + 1), repeat=d) if sum(a) <= order]
    return np.stack([np.prod([k[i] ** a[i] for i in range(d)], axis=0) for a in indices])


def in_words(name: str, channels: int) -> str:
    """A factor such as `0:d1inv`, for people."""
    channel, sym = name.split(":")
    field = "u" if channels == 1 else f"u{channel}"
    if sym == "1":
        return field
    if sym == "lap":
        return f"Laplacian({field})"
    axis = "xyz"[int(sym[1])]
    return f"d/d{axis} Laplacian^-1({field})" if sym.endswith("inv") else f"d({field})/d{axis}"


def factor_names(channels: int, num_spatial_dims: int) -> list[str]:
    """Every factor a product may have: each symbol of each channel, `channel:symbol`."""
    return [f"{c}:{s}" for c in range(channels) for s in symbol_names(num_spatial_dims)]


def shared_modes(of: tuple[int, ...], to: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where the modes that two grids share are stored on each of them, axis by axis.

    Grids of different size share |k| < min/2: the smaller one's Nyquist mode stands for two modes.
    """
    for axis, (n, m) in enumerate(zip(of, to, strict=True)):
        small, last = min(n, m), axis == len(of) - 1
        k = np.arange(small // 2 + 1) if last else np.fft.fftfreq(small, 1 / small).round().astype(int)
        if n != m:
            k = k[2 * np.abs(k) < small]
        yield (k, k) if last else (k % n, k % m)


def on_modes(values: np.ndarray, of: tuple[int, ...], to: tuple[int, ...], fill: np.ndarray) -> np.ndarray:
    """`fill`, given on the modes of grid `to`, with the shared modes taken from `values` on grid `of`."""
    source, target = zip(*shared_modes(of, to), strict=True)
    out = np.array(np.broadcast_to(fill, (*values.shape[: -len(of)], *mode_shape(to))))
    out[(..., *np.ix_(*target))] = values[(..., *np.ix_(*source))]
    return out
