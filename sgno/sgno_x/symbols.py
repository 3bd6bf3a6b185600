"""The smooth symbols that closures are made of, on the modes of a grid.

Fields are on a torus of length 2 pi, so that wavenumbers are whole numbers; a domain's length is absorbed by
the multipliers.
"""

import itertools

import numpy as np

from sgno.spectral import derivative, wavenumbers


def below(points: tuple[int, ...], cutoff: tuple[int, ...]) -> np.ndarray:
    """Where |k_i| <= cutoff_i along every axis."""
    k = np.abs(wavenumbers(points))
    return np.all([k_i <= c for k_i, c in zip(k, cutoff, strict=True)], axis=0)


def two_thirds(points: tuple[int, ...]) -> tuple[int, ...]:
    """The largest wavenumber of each axis below two thirds of Nyquist: squares alias only above it."""
    return tuple(max(1, (n // 2) * 2 // 3 - 1) for n in points)


def symbol_names(num_spatial_dims: int) -> tuple[str, ...]:
    """The symbols that factors are made of: `1`, `d_i`, and the Laplacian (1D) or `d_i Laplacian^-1`."""
    axes = range(num_spatial_dims)
    further = ["lap"] if num_spatial_dims == 1 else [f"d{i}inv" for i in axes]
    return ("1", *(f"d{i}" for i in axes), *further)


def symbol(name: str, points: tuple[int, ...]) -> np.ndarray:
    """A symbol by name on the modes of a grid: `1`, `d0` (i k_0), `lap` (-|k|²) or `d0inv` (-i k_0 / |k|²).

    Odd symbols vanish at Nyquist, where a real grid function has no odd derivative.
    """
    k_squared = (wavenumbers(points) ** 2).sum(0).astype(float)
    if name == "1":
        return np.ones(k_squared.shape, complex)
    if name == "lap":
        return -k_squared.astype(complex)
    odd, _ = derivative(points, int(name[1]))
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
