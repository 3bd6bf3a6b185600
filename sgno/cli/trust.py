"""What a rollout says about how long to trust it: from the header of the weights, and from where it went."""

import dataclasses
from typing import TYPE_CHECKING, Any

from sgno.cli.console import say

if TYPE_CHECKING:
    import numpy as np

    from sgno.solve.forecast_horizon import ForecastHorizon, TrainingRange


@dataclasses.dataclass(frozen=True)
class Trust:
    """The horizon that weights carry, and an observer of whether a forecast stays where it holds."""

    horizon: "ForecastHorizon"
    observer: "TrainingRange | None"

    def summary(self, left: "np.ndarray | None", samples: int) -> dict[str, Any]:
        """For the record: the horizon, and for each sample after how many steps it left the training
        distribution (None for never within the horizon) and how many steps of it can be trusted."""
        outside = [None if t < 0 else int(t) for t in left] if left is not None else [None] * samples
        steps = [self.horizon.steps if t is None else min(self.horizon.steps, t) for t in outside]
        return {**self.horizon.to_json(), "left_at": outside, "trusted_steps": steps}


def trust_in(weights: str, channels: int, level: float, *, same_grid: bool) -> Trust | None:
    """What a weights file, or a name that stands for one, says about how long to trust its forecasts.

    On another grid than that of the training there is a horizon, but nothing to compare states with.
    """
    from sgno.lab.zoo import find
    from sgno.solve.forecast_horizon import ForecastHorizon, range_from_json
    from sgno.weights import read_provenance

    said = read_provenance(find(weights))
    if "horizon" not in said:
        return None
    horizon = ForecastHorizon.from_json(said["horizon"]).at_level(level)
    watched = same_grid and horizon.steps > 0
    return Trust(horizon, range_from_json(said["range"], channels, until=horizon.steps) if watched else None)


def say_trust(trust: Trust | None, found: dict[str, Any] | None, steps: int, *, same_grid: bool) -> None:
    """One line for the horizon, one for what shortens it."""
    if trust is None or found is None:
        say("How long to trust this forecast is not known: `sgno evaluate` on held-out trajectories says it.")
        return
    say(str(trust.horizon))
    if not same_grid:
        say("That was measured on the grid of the training, not on this one.", style="yellow")
    if steps > trust.horizon.steps:
        say(f"Steps from {trust.horizon.steps + 1:,} on are beyond it: nothing is claimed for them.")
    outside = [t for t in found["left_at"] if t is not None]
    if outside:
        many = f"{len(outside)} of {len(found['left_at'])} sample(s)"
        when = "at the start" if min(outside) == 0 else f"at step {min(outside):,}"
        say(
            f"{many} left the training distribution, the first {when}: their horizon ends there.",
            style="yellow",
        )
