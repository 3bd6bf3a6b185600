"""A step between walls: any other step on the doubled, periodic grid."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.config import ModelConfig
from sgno.grid import Grid
from sgno.io.walls import Walls, grid_between
from sgno.step import (
    ParameterCount,
    batch,
    count_parameters,
    fast_batch,
    host_batch,
    prepare,
    states_at_once,
    trainable,
)


class Walled(eqx.Module):
    """`u+ = leave(step(enter(u)))`, where `enter` takes off the values at the walls and continues a state
    oddly or evenly beyond them (`sgno.io.walls`).

    The first `frames` channels of `grid` are those of the state and its earlier frames; known inputs may
    follow."""

    step: Any
    walls: Walls = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)
    frames: int = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self._leave(self.step(self._enter(u)), u)

    @property
    def config(self) -> "WalledConfig":
        return WalledConfig(self.step.config, self.walls, self.frames)

    def _enter(self, u: Any) -> Any:
        return self.walls.enter(u, self.frames)

    def _leave(self, v: Any, u: Any) -> Any:
        return self.walls.leave(v, self.frames, u.shape[u.ndim - 1 - self.walls.dims])

    def around(self, step: Any) -> "Walled":
        return Walled(step, self.walls, self.grid, self.frames)


@batch.register(Walled)
def _(step: Walled, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    return step._leave(batch(step.step, step._enter(u)), u)


@fast_batch.register(Walled)
def _(step: Walled, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    return step._leave(fast_batch(step.step, step._enter(u)), u)


@host_batch.register(Walled)
def _(step: Walled, u):
    new = host_batch(step.step, step._enter(u))
    return None if new is None else step._leave(new, u)


@states_at_once.register(Walled)
def _(step: Walled, points: tuple[int, ...]) -> int | None:
    return states_at_once(step.step, step.walls.points(points))


@prepare.register(Walled)
def _(step: Walled) -> Walled:
    return step.around(prepare(step.step))


@trainable.register(Walled)
def _(step: Walled) -> PyTree[bool]:
    return step.around(trainable(step.step))


@count_parameters.register(Walled)
def _(step: Walled) -> ParameterCount:
    return count_parameters(step.step)


@dataclasses.dataclass(frozen=True)
class WalledConfig(ModelConfig):
    """Another model between walls.

    **Arguments:**

    - `model`: the config of the other model, of states on the doubled grid.
    - `walls`: the condition and the values of each channel along each axis.
    - `frames`: channels of the state and its earlier frames; those behind them are known inputs.
    """

    kind: ClassVar[str] = "walled"

    model: ModelConfig
    walls: Walls
    frames: int

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Walled:
        return Walled(
            self.model.build(grid_between(self.walls, grid), key=key), self.walls, grid, self.frames
        )

    def recipe(self) -> Mapping[str, Any]:
        return self.model.recipe()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model.to_json(),
            "walls": dataclasses.asdict(self.walls),
            "frames": self.frames,
        }
