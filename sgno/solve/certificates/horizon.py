"""The finite-horizon bound of the rollout error, in logarithms: L^200 is no floating-point number."""

import math

import numpy as np


def finite_horizon(
    lipschitz: float,
    delta: float,
    num_steps: int,
    *,
    rounding: tuple[float, float] = (0.0, 0.0),
    size: float = 0.0,
    ball: float = math.inf,
) -> np.ndarray:
    """log10 of a bound of e_t for t = 1..num_steps, from e_1 <= delta and

        e_{t+1} <= (L + a) e_t + delta + 2 (a U + b).

    Without rounding this is the paper's recursion e_{t+1} <= L e_t + delta, hence delta (L^t - 1)/(L - 1).
    The step as evaluated differs from the map that is L-Lipschitz by at most a |u| + b at the true state,
    |u| <= U, and at the predicted one, |u| <= U + e_t.

    **Arguments:**

    - `lipschitz`: L, a Lipschitz constant of the step.
    - `delta`: the largest one-step error along the reference.
    - `rounding`: a, b.
    - `size`: U, the largest norm of a reference state.
    - `ball`: every predicted state has at most this norm, so that e_t <= U + ball.
    """
    relative, absolute = rounding
    with np.errstate(divide="ignore", over="ignore"):
        log_rate = float(np.log(lipschitz + relative))
        log_added = float(np.log(delta + 2 * (relative * size + absolute)))
        log_cap = float(np.log(size + ball))
        bound = [min(float(np.log(delta)), log_cap)]
        for _ in range(num_steps - 1):
            bound.append(min(float(np.logaddexp(log_rate + bound[-1], log_added)), log_cap))
    return np.asarray(bound) / math.log(10)
