"""Second-order training of SGNO-X: Gauss-Newton, mode by mode, instead of many small steps."""

import time
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from sgno.errors import InputError
from sgno.models.sgno_x import SGNOX
from sgno.models.sgno_x.fit import fit_of, install, refine
from sgno.models.sgno_x.start import split


class PolishResult(NamedTuple):
    """The step after polishing, its held-out one-step error relative to the increment before and after
    (mean squares), how many iterations were made, and how long they took."""

    step: SGNOX
    before: float
    after: float
    iterations: int
    seconds: float


def polish(
    step: SGNOX,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    iterations: int = 8,
    budget_seconds: float = float("inf"),
) -> PolishResult:
    """Correct the weights of a step, whatever trained it, by Gauss-Newton iterations.

    Each iteration regresses what one step leaves unexplained on the step's response to the weights of each
    mode (`sgno.models.sgno_x.fit.refine`) and is kept only if it lowers the error on held-out pairs, so
    polishing never makes a step worse on them. It is deterministic and needs no rate.

    **Arguments:**

    - `step`: an SGNO-X whose closure is chosen, as `warm_start` or training leave it.
    - `trajectories`: the training trajectories.
    - `iterations`, `budget_seconds`: stop after so many iterations, or with the first one that ends later.

    **Raises:** `InputError` if the step carries latent copies, whose weights do not enter linearly.
    """
    if step.latent is not None:
        raise InputError('polish needs carry="state": the weights of latent copies do not enter linearly.')
    start = time.perf_counter()
    pairs = split(np.asarray(trajectories))
    fit = refine(step, fit_of(step), pairs, iterations=0)
    before, done = fit.error, 0
    while done < iterations and time.perf_counter() - start < budget_seconds:
        better = refine(step, fit, pairs, iterations=1)
        done += 1
        if better.error >= fit.error:
            break
        fit = better
    return PolishResult(install(step, fit), before, fit.error, done, time.perf_counter() - start)
