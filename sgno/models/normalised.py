"""A step that works in units of its own: a change of units around any other step, stored with its weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.errors import InputError
from sgno.models.config import ModelConfig
from sgno.models.step import AbstractStep, Grid


class Normalised(AbstractStep):
    """`u+ = s step((u - m) / s) + m`, with a mean `m` and a scale `s` for each channel.

    States go in and come out in the user's units, so rollout and scoring need not know of it.
    """

    step: AbstractStep
    mean: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        m, s = self._constants(u, u.ndim - 1)
        return s * self.step((u - m) / s) + m

    def batch(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        m, s = self._constants(u, u.ndim - 2)
        return s * self.step.batch((u - m) / s) + m

    def prepare(self) -> "Normalised":
        return Normalised(self.step.prepare(), self.mean, self.scale)

    def warm_start(
        self, trajectories: Float[Array | np.ndarray, "samples times channels *points"], *, key: PRNGKeyArray
    ) -> "Normalised":
        m, s = (
            np.asarray(value, np.float32).reshape(-1, *(1,) * (trajectories.ndim - 3))
            for value in (self.mean, self.scale)
        )
        return Normalised(self.step.warm_start((trajectories - m) / s, key=key), self.mean, self.scale)

    def resolved(self, config: "NormalisedConfig") -> "NormalisedConfig":
        return dataclasses.replace(config, model=self.step.resolved(config.inner))

    def trainable(self) -> PyTree[bool]:
        return Normalised(self.step.trainable(), self.mean, self.scale)

    def _constants(self, u: Array, num_spatial_dims: int) -> tuple[Array, Array]:
        shape = (-1, *(1,) * num_spatial_dims)
        return jnp.asarray(self.mean, u.dtype).reshape(shape), jnp.asarray(self.scale, u.dtype).reshape(shape)


@dataclasses.dataclass(frozen=True)
class NormalisedConfig(ModelConfig):
    """Another model in units of its own.

    **Arguments:**

    - `model`: the settings of the other model, as a config or as the JSON of one.
    - `mean`, `scale`: one number per channel.
    """

    kind: ClassVar[str] = "normalised"

    model: Any
    mean: Sequence[float]
    scale: Sequence[float]

    def __post_init__(self):
        if isinstance(self.model, Mapping):
            from sgno.models.registry import config_from_json

            # Units around units are never written, and any depth of them could be asked for.
            if self.model.get("kind") == self.kind:
                raise InputError("A normalised model cannot hold another normalised model.")
            object.__setattr__(self, "model", config_from_json(self.model))
        object.__setattr__(self, "mean", tuple(float(m) for m in self.mean))
        object.__setattr__(self, "scale", tuple(float(s) for s in self.scale))
        numbers = np.array([self.mean, self.scale]) if len(self.mean) == len(self.scale) else np.array(np.nan)
        if not isinstance(self.model, ModelConfig) or not np.isfinite(numbers).all() or min(self.scale) <= 0:
            raise InputError(
                f"mean={self.mean}, scale={self.scale} do not normalise {self.model}: give a model, and as "
                "many finite means as positive scales."
            )

    @property
    def inner(self) -> ModelConfig:
        return self.model

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Normalised:
        if len(self.mean) != grid.channels:
            raise InputError(
                f"There are {len(self.mean)} means and scales, but the states have {grid.channels} channels."
            )
        return Normalised(self.inner.build(grid, key=key), tuple(self.mean), tuple(self.scale))

    def recipe(self) -> Mapping[str, Any]:
        return self.inner.recipe()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.inner.to_json(),
            "mean": list(self.mean),
            "scale": list(self.scale),
        }
