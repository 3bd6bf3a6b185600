"""Which Fourier modes are retained, in which order, and how far out each one lies.

A real field on a periodic grid is represented by `m` modes along its last axis, `0..m-1`
(the rest follow from conjugate symmetry), and `2m` along every other axis, in the order
`0..m-1, -m..-1`: `2^(d-1) m^d` modes in all.
"""

import numpy as np


def mode_shape(num_spatial_dims: int, num_modes: int) -> tuple[int, ...]:
    """The shape of one channel's retained coefficients, `(2m, ..., 2m, m)`."""
    return (2 * num_modes,) * (num_spatial_dims - 1) + (num_modes,)


def mode_numbers(num_modes: int, *, last: bool) -> np.ndarray:
    """The signed mode numbers along one axis, in storage order."""
    if last:
        return np.arange(num_modes)
    return np.concatenate([np.arange(num_modes), np.arange(-num_modes, 0)])


def mode_grid(num_spatial_dims: int, num_modes: int) -> np.ndarray:
    """Signed mode numbers of every retained mode, `(d, *mode_shape)`."""
    axes = [mode_numbers(num_modes, last=i == num_spatial_dims - 1) for i in range(num_spatial_dims)]
    return np.stack(np.meshgrid(*axes, indexing="ij"))


def radius(num_spatial_dims: int, num_modes: int) -> np.ndarray:
    """rho(k) = || (|k_i| / (m - 1))_i ||_2 / sqrt(d), on the retained modes.

    The true |k_i| is used on negative frequencies, so that rho(k) = rho(-k).
    """
    scaled = np.abs(mode_grid(num_spatial_dims, num_modes)) / max(num_modes - 1, 1)
    return np.linalg.norm(scaled, axis=0) / np.sqrt(num_spatial_dims)


def check_enough_points(points: tuple[int, ...], num_modes: int) -> None:
    """Raise unless the grid carries every retained mode without aliasing."""
    if min(points) < 2 * num_modes:
        raise ValueError(
            f"modes={num_modes} needs at least {2 * num_modes} points per axis, but the grid has "
            f"{'x'.join(map(str, points))}. Use fewer modes or a finer grid."
        )
