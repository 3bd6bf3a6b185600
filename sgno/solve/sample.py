"""A small view of one test trajectory, for pictures: whole in 1D, thinned fields in 2D, slices in 3D."""

import jax.numpy as jnp
import numpy as np

from sgno.solve.rollout import rollout
from sgno.step import Step

_FRAMES = {1: 200, 2: 40, 3: 40}
_MOST_POINTS = 64


def stride(num_spatial_dims: int, num_steps: int) -> int:
    """Steps between kept frames."""
    return max(1, num_steps // _FRAMES[num_spatial_dims])


def view(states: np.ndarray) -> np.ndarray:
    """`(times, channels, *points)` as float16: at most 64 points an axis, mid-slices (one per axis) in 3D."""
    num_spatial_dims = states.ndim - 2
    thin = tuple(slice(None, None, max(1, n // _MOST_POINTS)) for n in states.shape[2:])
    states = states[(slice(None), slice(None), *thin)]
    if num_spatial_dims == 3:
        middle = [n // 2 for n in states.shape[2:]]
        states = np.stack(
            [states[:, :, middle[0]], states[:, :, :, middle[1]], states[:, :, :, :, middle[2]]], axis=2
        )
    with np.errstate(over="ignore"):
        return states.astype(np.float16)


def sample_reference(test: np.ndarray) -> np.ndarray:
    """The frames of the first test trajectory, its initial state first."""
    every = stride(test.ndim - 3, test.shape[1] - 1)
    return view(np.asarray(test[0, ::every]))


def sample_rollout(step: Step, trajectory: np.ndarray, precision: str = "float32") -> np.ndarray:
    """The same frames as predicted from the trajectory's first state."""
    num_steps = trajectory.shape[0] - 1
    every = stride(trajectory.ndim - 2, num_steps)
    initial = jnp.asarray(trajectory[0], precision)
    states = np.asarray(rollout(step, initial, num_steps, every=every))
    return view(np.concatenate([trajectory[:1], states]))
