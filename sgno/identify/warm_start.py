"""A step fitted to data before its first update: what least squares can find, a gradient need not."""

from functools import singledispatch
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


@singledispatch
def warm_start(
    step: Any,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> Any:
    """The step to start training from, given the training trajectories. Default: the step as it is."""
    del trajectories, key
    return step
