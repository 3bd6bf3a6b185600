"""A step that is conditioned on more than one state: earlier frames and known inputs, as further channels."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from sgno.config import ModelConfig
from sgno.errors import InputError, unknown_name
from sgno.grid import Grid
from sgno.io.inputs import Conditions, Inputs, InputSpec, shaped
from sgno.io.source import Source, array_source
from sgno.step import (
    ParameterCount,
    Step,
    advanced,
    batch,
    count_parameters,
    drive,
    fast_batch,
    host_batch,
    most_steps,
    prepare,
    states_at_once,
    trainable,
    visible,
)


class Conditioned(eqx.Module):
    """`z = [u(t), u(t-1), .., c(t)] -> [u(t+1), u(t), .., c(t)]`, where `step` gives `u(t+1)` from `z`.

    The latest of `history` frames comes first; the known inputs `c` come last and pass unchanged. What a
    rollout shows is `u`, and `grid` is its shape.

        step = conditioned.bind(nu=0.01)    # a step of the frames alone
    """

    step: Any
    grid: Grid = eqx.field(static=True)
    history: int = eqx.field(static=True)
    inputs: tuple[InputSpec, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, "wide *points"]) -> Float[Array, "wide *points"]:
        self.check(z.shape)
        return self.shift(self.step(z), z, 0)

    @property
    def config(self) -> "ConditionedConfig":
        return ConditionedConfig(self.step.config, self.history, self.inputs)

    @property
    def frames(self) -> int:
        """Channels of all frames."""
        return self.history * self.grid.channels

    @property
    def wide(self) -> int:
        """Channels of all frames and inputs."""
        return self.frames + sum(spec.channels for spec in self.inputs)

    def shift(self, new: Any, z: Any, axis: int) -> Any:
        """`z` one frame later, whose latest state is the first of what the inner step gave."""
        C = self.grid.channels
        take = lambda a, *ends: a[(*(slice(None),) * axis, slice(*ends))]
        parts = [take(new, C), take(z, self.frames - C), take(z, self.frames, None)]
        return (np if isinstance(z, np.ndarray) else jnp).concatenate(parts, axis=axis)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `InputError` unless `z` of this shape has everything that the step needs."""
        if shape[0] == self.frames and self.inputs:
            names = ", ".join(f"{spec.name}=..." for spec in self.inputs)
            raise InputError(f"The step needs the known inputs it was trained with. Use step.bind({names}).")
        if shape[0] != self.wide:
            raise InputError(
                f"The step takes {self.history} frame(s) of {self.grid.channels} channel(s), the latest "
                f"first, {self.wide} channels with its inputs, but got a state of shape {shape}."
            )

    def start(self, frames: Float[Array | np.ndarray, "*frames"]) -> Array:
        """The state that a rollout starts from, of consecutive frames, the latest last."""
        axis = -2 - self.grid.num_spatial_dims
        latest_first = jnp.flip(jnp.asarray(frames), axis)
        split = [jnp.squeeze(f, axis) for f in jnp.split(latest_first, self.history, axis)]
        return jnp.concatenate(split, axis + 1)

    def bind(self, **values: Any) -> "Bound":
        """The step with its inputs given: numbers, fields `(*points)`, controls `(frames,)` or `(frames,
        *points)`, whose frames are those of the rollout. Arrays `(samples, frames, *points)`, with ones for
        what does not vary, give each state of a batch inputs of its own.

        **Raises:** `InputError` for a name that the step does not have, one that is missing, or a shape that
        does not fit.
        """
        points = self.grid.points
        arrays = {s.name: _as_array(s, values[s.name], points) for s in self.inputs if s.name in values}
        self._check_names(values)
        return self.given(Inputs(arrays))

    def known(
        self, given: Mapping[str, Any], samples: int, frames: int | None, points: tuple[int, ...]
    ) -> Inputs:
        """The inputs of trajectories of this shape, every one that the step needs and no other."""
        self._check_names(given)
        return Inputs.make({s.name: given[s.name] for s in self.inputs}, samples, frames, points)

    def _check_names(self, given: Mapping[str, Any]) -> None:
        names = [spec.name for spec in self.inputs]
        for name in given:
            if name not in names:
                raise unknown_name("input of the step", name, names)
        if missing := [name for name in names if name not in given]:
            raise InputError(f"The step needs its input '{missing[0]}'. Give {missing[0]}=...")

    def given(self, inputs: Inputs) -> "Bound":
        """The step with inputs `(samples or 1, frames or 1, *points or 1s)`, for as many states at once."""
        if not self.inputs:
            return Bound(self, None)
        shapes = [inputs.arrays[spec.name].shape for spec in self.inputs]
        samples, frames, *points = np.max(shapes, axis=0).tolist()
        rows, times = np.arange(samples), np.arange(frames)
        values = inputs.channels(self.inputs, rows, times, tuple(points))
        return Bound(self, jnp.asarray(np.moveaxis(values, 1, 0)))

    def begin(self, wide: Any, samples: slice, times: int, precision: str) -> tuple[np.ndarray, "Bound"]:
        """Where rollouts of some of the wide trajectories start, and the step with their inputs.

        **Arguments:** `wide`: trajectories with the conditions as channels, see `conditions`.
        """
        first = np.asarray(wide[samples, slice(0, 1)])
        values = None
        if self.inputs:
            changing = any(spec.control for spec in self.inputs)
            whole = np.asarray(wide[samples, slice(0, times)]) if changing else first
            values = jnp.asarray(np.moveaxis(whole[:, :, self.frames :], 1, 0), precision)
        return np.asarray(first[:, 0, : self.frames], precision), Bound(self, values)


class Bound(eqx.Module):
    """A conditioned step whose inputs are given: a step of the frames alone, `(history * channels, *points)`.

    `values[t]` are the inputs of the step from frame `t`, `(frames or 1, batch or 1, channels, *points or
    1s)`. Called by itself it takes the first step; a rollout counts.
    """

    step: Conditioned
    values: Float[Array, "frames batch channels *points"] | None

    @property
    def grid(self) -> Grid:
        return self.step.grid

    def __call__(self, u: Float[Array, "frames *points"]) -> Float[Array, "frames *points"]:
        step, z = drive(self, jnp.asarray(0), u)
        return step(z)[: u.shape[0]]


@dataclasses.dataclass(frozen=True)
class ConditionedConfig(ModelConfig):
    """Another model that sees `history` frames and known inputs, as channels.

    **Arguments:**

    - `model`: the config of the other model.
    - `history`: how many frames it sees.
    - `inputs`: the inputs, in the order of their channels.
    """

    kind: ClassVar[str] = "conditioned"

    model: ModelConfig
    history: int = 1
    inputs: tuple[InputSpec, ...] = ()

    def __post_init__(self):
        names = [spec.name for spec in self.inputs]
        if self.history < 1 or len(set(names)) < len(names):
            raise InputError(
                f"history={self.history}, inputs={names}: a step sees one frame or more, each input once."
            )

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Conditioned:
        blank = Conditioned(None, grid, self.history, self.inputs)
        model = self.model.build(Grid(blank.wide, grid.points), key=key)
        return Conditioned(model, grid, self.history, self.inputs)

    def recipe(self) -> Mapping[str, Any]:
        return self.model.recipe()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "model": self.model.to_json(),
            "history": self.history,
            "inputs": [dataclasses.asdict(spec) for spec in self.inputs],
        }


def condition(step: Any, grid: Grid, history: int = 1, inputs: Sequence[InputSpec] = ()) -> Any:
    """A step of wide states as one that shows states of `grid`; itself if there is nothing to condition
    on."""
    return Conditioned(step, grid, history, tuple(inputs)) if history > 1 or inputs else step


def conditions(step: Conditioned, trajectories: Any, inputs: Mapping[str, Any] | None = None) -> Any:
    """Trajectories with what a step is conditioned on as further channels; as they are if they have them.

    **Raises:** `InputError` if an input is missing or does not fit.
    """
    samples, frames, channels, *points = trajectories.shape
    if channels == step.wide != step.grid.channels and not inputs:
        return trajectories
    made = step.known(inputs or {}, samples, frames, tuple(points))
    source = trajectories if isinstance(trajectories, Source) else array_source(trajectories)
    return Conditions(source, made, step.history, step.inputs)


def _as_array(spec: InputSpec, given: Any, points: tuple[int, ...]) -> np.ndarray:
    """An input of one trajectory, or in its full form `(samples, frames, *points)`."""
    a = np.asarray(given)
    if a.ndim == 2 + len(points):
        return shaped(spec.name, a, a.shape[0], a.shape[1], points)
    return shaped(spec.name, a[None] if a.ndim and a.shape != points else a, 1, None, points)


@visible.register(Conditioned)
def _(step: Conditioned) -> int:
    return step.grid.channels


@advanced.register(Conditioned)
def _(step: Conditioned) -> int:
    return step.frames


@visible.register(Bound)
def _(step: Bound) -> int:
    return step.grid.channels


@drive.register(Bound)
def _(step: Bound, t: Int[Array, ""], u: Float[Array | np.ndarray, "*state"]) -> tuple[Step, Any]:
    if step.values is None:
        return step.step, u
    values = step.values[jnp.minimum(t, len(step.values) - 1)].astype(u.dtype)
    points = u.shape[u.ndim - step.grid.num_spatial_dims :]
    many = u.ndim > 1 + len(points)
    shape = (*((len(u),) if many else ()), values.shape[1], *points)
    given = jnp.broadcast_to(values if many else values[0], shape)
    return step.step, jnp.concatenate([u, given], axis=-1 - len(points))


@most_steps.register(Bound)
def _(step: Bound) -> int | None:
    if step.values is None or len(step.values) == 1:
        return None
    # A control that is linear between frames has to be known at the end of a step too.
    linear = any(spec.channels == 2 for spec in step.step.inputs)
    return len(step.values) - linear


@batch.register(Conditioned)
def _(step: Conditioned, u: Float[Array, "batch wide *points"]) -> Float[Array, "batch wide *points"]:
    step.check(u.shape[1:])
    return step.shift(batch(step.step, u), u, 1)


@fast_batch.register(Conditioned)
def _(step: Conditioned, u: Float[Array, "batch wide *points"]) -> Float[Array, "batch wide *points"]:
    step.check(u.shape[1:])
    return step.shift(fast_batch(step.step, u), u, 1)


@host_batch.register(Conditioned)
def _(step: Conditioned, u: Float[np.ndarray, "batch wide *points"]):
    step.check(u.shape[1:])
    new = host_batch(step.step, u)
    return None if new is None else step.shift(new, u, 1)


@count_parameters.register(Conditioned)
def _(step: Conditioned) -> ParameterCount:
    return count_parameters(step.step)


@batch.register(Bound)
def _(step: Bound, u: Float[Array, "batch frames *points"]) -> Float[Array, "batch frames *points"]:
    inner, z = drive(step, jnp.asarray(0), u)
    return batch(inner, z)[:, : u.shape[1]]


@states_at_once.register(Conditioned)
def _(step: Conditioned, points: tuple[int, ...]) -> int | None:
    return states_at_once(step.step, points)


@prepare.register(Conditioned)
def _(step: Conditioned) -> Conditioned:
    return Conditioned(prepare(step.step), step.grid, step.history, step.inputs)


@prepare.register(Bound)
def _(step: Bound) -> Bound:
    return Bound(prepare(step.step), step.values)


@trainable.register(Conditioned)
def _(step: Conditioned) -> PyTree[bool]:
    return Conditioned(trainable(step.step), step.grid, step.history, step.inputs)


@trainable.register(Bound)
def _(step: Bound) -> PyTree[bool]:
    return Bound(trainable(step.step), jax.tree.map(lambda _: False, step.values))
