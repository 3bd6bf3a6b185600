"""Persistence: tomorrow is like today. The forecast that every other one must beat."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.grid import Grid
from sgno.io.survey import Normalise


class Persistence(eqx.Module):
    """`u+ = u`, on any grid. It has no parameters."""

    config: "PersistenceConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return u


@dataclasses.dataclass(frozen=True)
class PersistenceConfig(ModelConfig):
    """The state stays as it is. Nothing is fitted or trained."""

    kind: ClassVar[str] = "persistence"
    units: ClassVar[Normalise] = "none"

    def build(self, grid: Grid, *, key: PRNGKeyArray | None = None) -> Persistence:
        del key
        return Persistence(self, grid)

    def recipe(self) -> Mapping[str, Any]:
        return {"updates": 0}
