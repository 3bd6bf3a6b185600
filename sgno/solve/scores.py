"""From errors per step to the few numbers a table shows. Plain numpy; nothing is clipped or dropped."""

import numpy as np

EPSILON_LOG = 1e-12
HORIZON = 100


def mean_over_trajectories(errors: np.ndarray) -> np.ndarray:
    """`(times, trajectories) -> (times,)`; one non-finite trajectory makes the step non-finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(errors, np.float64).mean(axis=1)


def gmean(mean_nrmse: np.ndarray, up_to: int = HORIZON) -> float:
    """exp(mean(log(L_t + 1e-12))) over steps 1..up_to, or up to the last step there is.

    Non-finite if any of these steps is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.exp(np.mean(np.log(np.asarray(mean_nrmse, np.float64)[:up_to] + EPSILON_LOG))))


def stable_step(mean_nrmse: np.ndarray, tau: float = 0.2) -> int:
    """How many steps the mean nRMSE stays at or below `tau` without a break; non-finite counts as above."""
    above = ~(np.asarray(mean_nrmse) <= tau)
    return int(np.argmax(above)) if above.any() else len(above)


def nonfinite_steps(errors: np.ndarray) -> int:
    """How many steps have at least one non-finite trajectory."""
    finite = np.isfinite(np.asarray(errors)).reshape(len(errors), -1).all(axis=1)
    return int((~finite).sum())


def phase_average(errors: np.ndarray, up_to: int = HORIZON) -> float:
    """Mean over steps and trajectories that have a phase error."""
    part = np.asarray(errors, np.float64)[:up_to]
    defined = ~np.isnan(part)
    return float(part[defined].mean()) if defined.any() else float("nan")
