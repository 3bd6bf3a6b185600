"""What every model is: one step `u -> u+` of a discretised PDE state."""

import abc
import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

# About so many points at a time keep an update in the cache of a core: twice as fast as a batch of 20, for
# SGNO in 3D and for SGNO-X in 2D.
_POINTS_AT_ONCE = 5120


@dataclass(frozen=True)
class Grid:
    """The shape of one state, `(channels, *points)`: all that a model knows of its data."""

    channels: int
    points: tuple[int, ...]

    def __post_init__(self):
        if self.channels < 1 or not self.points or min(self.points) < 2:
            raise ValueError(
                f"Grid(channels={self.channels}, points={self.points}) is not a state. "
                "Use at least one channel and at least two points along each axis."
            )
        if len(self.points) > 3:
            raise ValueError(f"A grid has 1, 2 or 3 axes, but points={self.points} has {len(self.points)}.")

    @property
    def num_spatial_dims(self) -> int:
        return len(self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.points)


def cached_states(points: tuple[int, ...]) -> int:
    """How many states a core's cache holds together with what a spectral step makes of them."""
    return max(1, _POINTS_AT_ONCE // math.prod(points))


class AbstractStep(eqx.Module):
    """One step of the evolution, `u -> u+`, both `(C, *N)`.

    Solvers, networks and closed-form fits are all steps, so that training, rollout and
    scoring are written once. A step is an Equinox module: `jit`, `vmap` and `grad` apply.
    """

    @abc.abstractmethod
    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        """Advance one state by one time step."""

    def batch(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        """Advance many states; a model overrides this where it knows a faster layout than `vmap`."""
        return jax.vmap(self)(u)

    def prepare(self) -> "AbstractStep":
        """The same step with everything that depends on the weights alone computed once.

        Training calls it once per update and rollout once per trajectory, not once per step.
        """
        return self

    def states_at_once(self, points: tuple[int, ...]) -> int | None:
        """How many states fit into a core's cache together with what a step makes of them; None for any.

        Training and rollout on a CPU take so many of a batch at a time (`chunk_size`).
        """
        del points
        return None

    def warm_start(
        self, trajectories: Float[Array | np.ndarray, "samples times channels *points"], *, key: PRNGKeyArray
    ) -> "AbstractStep":
        """The step to start training from, given the training trajectories. Most ignore them."""
        del trajectories, key
        return self

    def resolved(self, config: Any) -> Any:
        """The model's config with every choice filled in that `warm_start` left to the data.

        Building from it gives a step of this structure, which is what a weights file needs.
        """
        return config

    def trainable(self) -> PyTree[bool]:
        """True at the leaves an optimiser may change: every floating-point array unless overridden."""
        return jax.tree.map(eqx.is_inexact_array, self)


def chunk_size(step: AbstractStep, batch: int, points: tuple[int, ...]) -> int:
    """The largest divisor of `batch` within what `step` takes at once on this machine: all off the CPU."""
    limit = step.states_at_once(points)
    if limit is None or jax.default_backend() != "cpu":
        return batch
    return next(size for size in range(min(limit, batch), 0, -1) if batch % size == 0)
