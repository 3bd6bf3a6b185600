"""Persistence: tomorrow is like today. The forecast that every other one must beat."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.grid import Grid
from sgno.io.survey import Normalise
from sgno.step import host_batch


class Persistence(eqx.Module):
    """`u+ = u`, on any grid. It has no parameters."""

    config: "PersistenceConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return u


@host_batch.register(Persistence)
def _(
    step: Persistence, u: Float[np.ndarray, "batch channels *points"]
) -> Float[np.ndarray, "batch channels *points"]:
    del step
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
