"""What lies between a user's states and those that a model learns, in one order, for the data and for the
step.

    the user's states, with earlier frames and known inputs as channels   (Conditioned)
      -> in units of the model's own                                      (Normalised)

The data go down through all of it before training, and the trained step is wrapped from the inside out, so
that the step that is stored takes and gives the user's states.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import PRNGKeyArray

from sgno.config import ModelConfig
from sgno.grid import Grid
from sgno.io.inputs import InputSpec
from sgno.io.survey import ChannelUnits, Normalise, choose_units
from sgno.lab.data.own import OwnTask
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.tasks import Task
from sgno.nn.conditioned import Conditioned, condition
from sgno.nn.normalised import Normalised


@dataclass(frozen=True)
class Views:
    """The views of one run. `grid` is that of the user's states."""

    grid: Grid
    history: int
    inputs: tuple[InputSpec, ...]
    units: ChannelUnits | None

    @staticmethod
    def of(task: Task | OwnTask, data: Trajectories, normalise: Normalise) -> "Views":
        units = choose_units(normalise, data.moments)
        if isinstance(task, OwnTask):
            return Views(task.grid, task.history, task.inputs, units)
        return Views(data.grid, 1, (), units)

    def learned(self, trajectories: Any) -> Any:
        """Trajectories as the model learns them."""
        return trajectories if self.units is None else self.units.apply(trajectories)

    def build(self, config: ModelConfig, *, key: PRNGKeyArray) -> Any:
        """A fresh step of what is learned."""
        wide = Conditioned(None, self.grid, self.history, self.inputs).wide
        model = config.build(Grid(wide, self.grid.points), key=key)
        return condition(model, self.grid, self.history, self.inputs)

    def wrap(self, step: Any) -> Any:
        """A step of what is learned as a step of the user's states."""
        model = step.step if isinstance(step, Conditioned) else step
        if self.units is not None:
            model = Normalised(model, self.units.mean, self.units.scale)
        return condition(model, self.grid, self.history, self.inputs)
