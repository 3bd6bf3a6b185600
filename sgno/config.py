"""A model as plain data: a frozen config that builds a step for a grid."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxtyping import PRNGKeyArray

from sgno.grid import Grid
from sgno.io.survey import Normalise
from sgno.step import Step


@dataclasses.dataclass(frozen=True)
class ModelConfig(abc.ABC):
    """Settings of a model, independent of task and grid. Subclasses are frozen dataclasses
    whose fields are plain JSON values, checked in `__post_init__`."""

    kind: ClassVar[str]
    # What a model learns in unless it is told otherwise: states shifted and scaled, only scaled (a shift
    # would spoil the form of an equation), or as they are.
    units: ClassVar[Normalise] = "standard"
    # Whether it can learn from known inputs that stand beside the state as channels.
    takes_inputs: ClassVar[bool] = True

    @abc.abstractmethod
    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Step:
        """A freshly initialised step for states of shape `grid.shape`."""

    def for_grid(self, grid: Grid) -> "ModelConfig":
        """These settings, reduced where a grid cannot carry them and widened where its channels need it."""
        del grid
        return self

    def recipe(self) -> Mapping[str, Any]:
        """Training settings this model asks for where they differ from the protocol's defaults."""
        return {}

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dataclasses.asdict(self)}
