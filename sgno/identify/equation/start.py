"""An equation as a model: found from the training trajectories before its first step."""

import logging

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.identify.equation.discover import Discovery, discover
from sgno.identify.equation.step import EquationStep
from sgno.identify.linear import warm_start

_log = logging.getLogger(__name__)


@warm_start.register(EquationStep)
def _(
    step: EquationStep,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> EquationStep:
    """The step of the equation that `discover` finds; a line says so where the data do not support one."""
    del key
    config = step.config
    discovery = discover(
        np.asarray(trajectories),
        dt=config.dt,
        length=config.length,
        channels=step.equation.channels,
        log=_log.debug,
    )
    _say(discovery)
    return discovery.step(step.grid)


def _say(discovery: Discovery) -> None:
    if discovery.found:
        _log.info("Found: %s (held-out error %.2g)", discovery.equation, discovery.held_out)
        return
    what = "the best candidate" if discovery.forecast.terms else "persistence"
    _log.warning("No equation was found, so the step is %s. %s", what, " ".join(discovery.notes))
