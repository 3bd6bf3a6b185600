"""Scores of forecasts on the wild suite: the paper's geometric mean and the stable step."""

import numpy as np

from sgno.solve.metrics import gmean, mean_over_trajectories, stable_step


def errors(states: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The nRMSE of each step and trajectory, `(steps, samples)`."""
    axes = tuple(range(2, truth.ndim))
    with np.errstate(all="ignore"):
        power = (truth.astype(np.float64) ** 2).sum(axes)
        return np.sqrt(((states - truth) ** 2).sum(axes) / power).T


def gmean_of(errors: np.ndarray) -> float:
    """Mean over trajectories, then the geometric mean over steps."""
    return gmean(mean_over_trajectories(errors))


def stable_of(errors: np.ndarray) -> int:
    """How many steps the mean over trajectories stays below 20 %."""
    return stable_step(mean_over_trajectories(errors))
