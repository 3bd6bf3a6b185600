"""What lies between a user's states and those that a model learns, in one order, for the data and for the
step.

    the user's states, with earlier frames and known inputs as channels   (Conditioned)
      -> without the values at walls, continued beyond them               (Walled)
      -> in units of the model's own                                      (Normalised)

The data go down through all of it before training, and the trained step is wrapped from the inside out, so
that the step that is stored takes and gives the user's states.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from sgno.config import ModelConfig
from sgno.grid import Grid
from sgno.io.inputs import InputSpec
from sgno.io.source import Source
from sgno.io.survey import ChannelUnits, Normalise, choose_units
from sgno.io.walls import WalledSource, Walls, grid_between
from sgno.lab.data.own import OwnTask
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.tasks import Task
from sgno.nn.conditioned import Conditioned, condition
from sgno.nn.normalised import Normalised
from sgno.nn.walled import Walled


def _odd_units(units: ChannelUnits | None, task: OwnTask) -> ChannelUnits | None:
    """Units without a shift for the channels that are continued oddly: their mean is zero but for
    rounding."""
    if units is None or task.walls is None:
        return units
    odd = [any(wall.parity < 0 for wall in walls) for walls in task.walls.channels] * task.history
    odd += [False] * (len(units.mean) - len(odd) - len(task.walls.lifted)) + [True] * len(task.walls.lifted)
    return replace(units, mean=tuple(0.0 if o else m for o, m in zip(odd, units.mean, strict=True)))


@dataclass(frozen=True)
class Views:
    """The views of one run. `grid` is that of the user's states."""

    grid: Grid
    history: int
    inputs: tuple[InputSpec, ...]
    walls: Walls | None
    units: ChannelUnits | None

    @staticmethod
    def of(task: Task | OwnTask, data: Trajectories, normalise: Normalise) -> "Views":
        units = choose_units(normalise, data.moments)
        if isinstance(task, OwnTask):
            units = _odd_units(units, task) if task.walls else units
            return Views(task.grid, task.history, task.inputs, task.walls, units)
        return Views(data.grid, 1, (), None, units)

    @property
    def frames(self) -> int:
        """Channels of the state and its earlier frames."""
        return self.history * self.grid.channels

    @property
    def wide(self) -> Grid:
        """The grid of the user's states with everything that a step is conditioned on."""
        return Grid(self.frames + sum(spec.channels for spec in self.inputs), self.grid.points)

    def learned(self, trajectories: Any) -> Any:
        """Trajectories as the model learns them."""
        if self.walls is not None:
            doubled = isinstance(trajectories, Source)
            enter = WalledSource if doubled else lambda u, walls, frames: walls.enter(np.asarray(u), frames)
            trajectories = enter(trajectories, self.walls, self.frames)
        return trajectories if self.units is None else self.units.apply(trajectories)

    def build(self, config: ModelConfig, *, key: PRNGKeyArray) -> Any:
        """A fresh step of what is learned."""
        wide, own, lifts = self.wide, self.grid, ()
        if self.walls is not None:
            wide, own = (grid_between(self.walls, grid) for grid in (wide, own))
            own = Grid(self.grid.channels, own.points)
            lifts = tuple(InputSpec(f"lift {c}") for c in self.walls.lifted)
        return condition(config.build(wide, key=key), own, self.history, (*self.inputs, *lifts))

    def wrap(self, step: Any) -> Any:
        """A step of what is learned as a step of the user's states."""
        model = step.step if isinstance(step, Conditioned) else step
        if self.units is not None:
            model = Normalised(model, self.units.mean, self.units.scale)
        if self.walls is not None:
            model = Walled(model, self.walls, self.wide, self.frames)
        return condition(model, self.grid, self.history, self.inputs)
