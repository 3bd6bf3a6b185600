"""A step that works in units of its own: a change of units around any other step, stored with its weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.step import (
    ParameterCount,
    batch,
    count_parameters,
    fast_batch,
    fault,
    host_batch,
    prepare,
    states_at_once,
    trainable,
)


class Normalised(eqx.Module):
    """`u+ = s step((u - m) / s) + m`, with a mean `m` and a scale `s` for each channel.

    States go in and come out in the user's units, so rollout and scoring need not know of it.
    """

    step: Any
    mean: tuple[float, ...] = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        m, s = self.constants(u, u.ndim - 1)
        return s * self.step((u - m) / s) + m

    @property
    def config(self) -> "NormalisedConfig":
        return NormalisedConfig(self.step.config, self.mean, self.scale)

    @property
    def grid(self) -> Grid:
        return self.step.grid

    def constants(self, u: Any, num_spatial_dims: int) -> tuple[Any, Any]:
        """Mean and scale, shaped to meet the channels of `u`."""
        shape = (-1, *(1,) * num_spatial_dims)
        return np.asarray(self.mean, u.dtype).reshape(shape), np.asarray(self.scale, u.dtype).reshape(shape)


@batch.register(Normalised)
def _(step: Normalised, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    m, s = step.constants(u, u.ndim - 2)
    return s * batch(step.step, (u - m) / s) + m


@fast_batch.register(Normalised)
def _(step: Normalised, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    m, s = step.constants(u, u.ndim - 2)
    return s * fast_batch(step.step, (u - m) / s) + m


@count_parameters.register(Normalised)
def _(step: Normalised) -> ParameterCount:
    return count_parameters(step.step)


@host_batch.register(Normalised)
def _(
    step: Normalised, u: Float[np.ndarray, "batch channels *points"]
) -> Float[np.ndarray, "batch channels *points"] | None:
    m, s = step.constants(u, u.ndim - 2)
    new = host_batch(step.step, (u - m) / s)
    return None if new is None else s * new + m


@fault.register(Normalised)
def _(step: Normalised) -> str | None:
    return fault(step.step)


@states_at_once.register(Normalised)
def _(step: Normalised, points: tuple[int, ...]) -> int | None:
    return states_at_once(step.step, points)


@prepare.register(Normalised)
def _(step: Normalised) -> Normalised:
    return Normalised(prepare(step.step), step.mean, step.scale)


@trainable.register(Normalised)
def _(step: Normalised) -> PyTree[bool]:
    return Normalised(trainable(step.step), step.mean, step.scale)


@dataclasses.dataclass(frozen=True)
class NormalisedConfig(ModelConfig):
    """Another model in units of its own.

    **Arguments:**

    - `model`: the config of the other model.
    - `mean`, `scale`: one number per channel.
    """

    kind: ClassVar[str] = "normalised"

    model: ModelConfig
    mean: Sequence[float]
    scale: Sequence[float]

    def __post_init__(self):
        if isinstance(self.model, NormalisedConfig):
            raise InputError("A normalised model cannot hold another normalised model.")
        object.__setattr__(self, "mean", tuple(float(m) for m in self.mean))
        object.__setattr__(self, "scale", tuple(float(s) for s in self.scale))
        numbers = np.array([self.mean, self.scale]) if len(self.mean) == len(self.scale) else np.array(np.nan)
        if not np.isfinite(numbers).all() or min(self.scale) <= 0:
            raise InputError(
                f"mean={self.mean}, scale={self.scale} do not normalise {self.model}: "
                "give as many finite means as positive scales."
            )

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Normalised:
        if len(self.mean) != grid.channels:
            raise InputError(
                f"There are {len(self.mean)} means and scales, but the states have {grid.channels} channels."
            )
        return Normalised(self.model.build(grid, key=key), tuple(self.mean), tuple(self.scale))

    def recipe(self) -> Mapping[str, Any]:
        return self.model.recipe()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model.to_json(),
            "mean": list(self.mean),
            "scale": list(self.scale),
        }
