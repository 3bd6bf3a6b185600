"""A step in units of its own is fitted to data in these units."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.identify.warm_start import warm_start
from sgno.nn.normalised import Normalised


@warm_start.register(Normalised)
def _(
    step: Normalised,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> Normalised:
    m, s = (
        np.asarray(value, np.float32).reshape(-1, *(1,) * (trajectories.ndim - 3))
        for value in (step.mean, step.scale)
    )
    return Normalised(warm_start(step.step, (trajectories - m) / s, key=key), step.mean, step.scale)
