"""Which windows of which trajectories make up each mini-batch."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sgno.errors import InputError


def num_windows(num_times: int, unroll: int) -> int:
    """How many windows of `unroll + 1` consecutive states a trajectory holds."""
    windows = num_times - unroll
    if windows < 1:
        raise InputError(
            f"Trajectories of {num_times} states are too short for unroll={unroll}: it needs {unroll + 1}. "
            "Use longer trajectories or a smaller unroll."
        )
    return windows


def batch_plan(
    num_samples: int, updates: int, batch_size: int, *, key: PRNGKeyArray
) -> Int[np.ndarray, "u b"]:
    """The window numbers of every mini-batch: a fresh permutation per epoch.

    The keys are split as APEBench's mixer splits them, so that the same seed sees the same
    batches there and here. A last incomplete batch of an epoch is left out.
    """
    batch_size = min(batch_size, num_samples)
    per_epoch = num_samples // batch_size
    epochs = -(-updates // per_epoch)

    def one_epoch(key, _):
        return jax.random.split(key)[0], jax.random.permutation(key, num_samples)

    _, order = jax.lax.scan(one_epoch, key, None, length=epochs)
    batches = np.asarray(order[:, : per_epoch * batch_size]).reshape(-1, batch_size)
    return batches[:updates].astype(np.int32)


def take_windows(
    trajectories: Float[Array, "samples times *state"], windows: Int[Array, " batch"], unroll: int
) -> Float[Array, "window batch *state"]:
    """The states of each window, time first."""
    per_trajectory = num_windows(trajectories.shape[1], unroll)
    sample, start = windows // per_trajectory, windows % per_trajectory
    return jnp.stack([trajectories[sample, start + t] for t in range(unroll + 1)])
