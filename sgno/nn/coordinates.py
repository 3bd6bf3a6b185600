"""Coordinate channels appended to the state."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

CoordinateKind = Literal["ends", "none", "periodic"]


def coordinate_channels(kind: CoordinateKind, num_spatial_dims: int) -> int:
    """How many channels `coordinates` returns."""
    return {"ends": 1, "none": 0, "periodic": 2}[kind] * num_spatial_dims


def coordinates(
    kind: CoordinateKind, points: tuple[int, ...], dtype: np.dtype
) -> Float[Array, "coordinates *points"]:
    """The coordinate channels of a grid.

    - `"ends"`: `linspace(0, 1, N)` with both ends, one channel per axis, as in the paper.
    - `"periodic"`: sin and cos of 2 pi x per axis, smooth across the boundary.
    - `"none"`: no channel, which makes the model translation equivariant.
    """
    if kind == "none":
        return jnp.zeros((0, *points), dtype)
    channels = []
    for axis, n in enumerate(points):
        if kind == "ends":
            profiles = [np.linspace(0, 1, n)]
        else:
            angle = 2 * np.pi * np.arange(n) / n
            profiles = [np.sin(angle), np.cos(angle)]
        shape = [n if i == axis else 1 for i in range(len(points))]
        channels += [np.broadcast_to(profile.reshape(shape), points) for profile in profiles]
    return jnp.asarray(np.stack(channels), dtype)
