"""Score a step against reference trajectories, without holding its predictions or all of the reference."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sgno.engine import Observer, begin, run
from sgno.errors import InputError
from sgno.io.source import Source
from sgno.solve.metrics import (
    SpectralErrors,
    correlation,
    energy_spectrum,
    gmean,
    mean_over_trajectories,
    nonfinite_steps,
    nrmse,
    spectral_errors,
    stable_step,
)
from sgno.solve.monitor import Monitor, Reference, Signals
from sgno.step import Step

# Numbers of reference states on the device at once, and of one time of a block of trajectories: 64 and 16 MB
# in float32.
_CHUNK_NUMBERS, _STATE_NUMBERS = 16_000_000, 4_000_000
# Frames of a trajectory that pictures show, by the number of axes, and points an axis.
_FRAMES = {1: 200, 2: 40, 3: 40}
_VIEW_POINTS = 64


# An array, a memory map, or a file.
Trajectories = np.ndarray | Array | Source


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Errors of a closed-loop rollout, `(times, trajectories)` each, and spectra `(times, radius)`.

    `sample` are frames of the first trajectory as predicted (see `view`). `signals` are those of the monitor,
    if there was one.
    """

    nrmse: np.ndarray
    correlation: np.ndarray
    spectral: SpectralErrors
    spectrum: np.ndarray
    reference_spectrum: np.ndarray
    sample: np.ndarray
    signals: Signals | None = None

    @property
    def mean_nrmse(self) -> np.ndarray:
        return mean_over_trajectories(self.nrmse)

    @property
    def gmean100(self) -> float:
        return gmean(self.mean_nrmse)

    @property
    def nonfinite_steps(self) -> int:
        return nonfinite_steps(self.nrmse)

    def stable_step(self, tau: float = 0.2) -> int:
        return stable_step(self.mean_nrmse, tau)


def evaluate(
    step: Step,
    reference: Trajectories,
    *,
    samples: int | None = None,
    steps: int | None = None,
    precision: str = "float32",
    watch: Reference | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Roll out from the first state of each reference trajectory and compare step by step.

    **Arguments:**

    - `step`: any step.
    - `reference`: `(trajectories, times, channels, *points)`, read in parts: an array, a memory map, a file's
        `Source`.
    - `samples`, `steps`: only the first `samples` trajectories and the first `steps` steps.
    - `precision`: dtype of the rollout.
    - `watch`: `reference_statistics` of the training data, to watch the rollout as if there were no truth.
    - `on_progress`: called with the number of trajectories done.

    **Returns:**

    An `Evaluation` over `times - 1` steps. Non-finite predictions stay in it as such.

    **Raises:** `InputError` if there is nothing to compare, or the step cannot take the states.
    """
    count, times = reference.shape[:2]
    count = count if samples is None else min(count, samples)
    times = times if steps is None else min(times, 1 + steps)
    if count < 1 or times < 2:
        raise InputError(
            f"The reference has the shape {reference.shape}, samples={samples} and steps={steps}, but one "
            "trajectory of two times is the least that can be compared."
        )
    size = int(np.clip(_STATE_NUMBERS // max(1, int(np.prod(reference.shape[2:]))), 1, count))
    parts, weights = [], []
    for first in range(0, count, size):
        chosen = slice(first, min(first + size, count))
        parts.append(_evaluate(step, reference, chosen, times - 1, precision, watch))
        weights.append(chosen.stop - first)
        on_progress(chosen.stop)
    join = lambda *kind: np.concatenate(kind, axis=1)
    average = lambda name: np.average([getattr(part, name) for part in parts], axis=0, weights=weights)
    return Evaluation(
        join(*(part.nrmse for part in parts)),
        join(*(part.correlation for part in parts)),
        jax.tree.map(join, *(part.spectral for part in parts)),
        average("spectrum"),
        average("reference_spectrum"),
        parts[0].sample,
        jax.tree.map(join, *(part.signals for part in parts)),
    )


class _Compared(NamedTuple):
    """What there is to know of the states of one time and their reference."""

    nrmse: Float[Array, " batch"]
    correlation: Float[Array, " batch"]
    spectral: SpectralErrors
    spectrum: Float[Array, " radius"]
    reference_spectrum: Float[Array, " radius"]
    sample: Array


class _Compare(Observer):
    """Compares the states after step `t` with `truth[t - first]`."""

    truth: Float[Array, "times batch channels *points"]
    first: Int[Array, ""]

    def init(self, u0):
        return None

    def __call__(self, memory, t, u):
        target = self.truth[t - self.first]
        spectra = energy_spectrum(u), energy_spectrum(target)
        errors = nrmse(u, target), correlation(u, target), spectral_errors(u, target)
        return None, _Compared(*errors, *spectra, view(u[:1])[0])


def _evaluate(
    step: Step, reference, chosen: slice, num_steps: int, precision: str, watch: Reference | None
) -> Evaluation:
    """The evaluation of trajectories whose states of one time fit into memory together."""
    start = np.asarray(reference[chosen, slice(0, 1)])
    u0 = jnp.asarray(start[:, 0], precision)
    chunk = max(1, _CHUNK_NUMBERS // max(1, u0.size))
    # Powers of two, so that another number of steps is mostly the same program.
    room = min(chunk, 1 << (num_steps - 1).bit_length())
    monitors = () if watch is None else (Monitor(watch),)
    carry, pieces = None, []
    for first in range(1, num_steps + 1, room):
        count = min(room, num_steps + 1 - first)
        truth = np.zeros((room, *u0.shape), precision)
        truth[:count] = np.moveaxis(np.asarray(reference[chosen, slice(first, first + count)]), 1, 0)
        observers = (_Compare(jnp.asarray(truth), jnp.asarray(first, jnp.int32)), *monitors)
        carry = begin(u0, observers) if carry is None else carry
        carry, _, (_, seen) = run(step, carry, observers, count, room=room, states=False)
        pieces.append(jax.tree.map(lambda x, count=count: np.asarray(x)[:count], seen))
    compared, *signals = jax.tree.map(lambda *piece: np.concatenate(piece), *pieces)
    every = frame_stride(u0.ndim - 2, num_steps)
    sample = np.concatenate([np.asarray(view(jnp.asarray(start[0]))), compared.sample[every - 1 :: every]])
    return Evaluation(*compared._replace(sample=sample), *signals)


def frame_stride(num_spatial_dims: int, num_steps: int) -> int:
    """Steps between the frames of a sample."""
    return max(1, num_steps // _FRAMES[num_spatial_dims])


def view(states: Float[Array, "times channels *points"]) -> Float[Array, "times channels *pixels"]:
    """States for pictures, in float16: about 64 points an axis, and in 3D one slice across each axis."""
    states = states[(..., *(slice(None, None, max(1, n // _VIEW_POINTS)) for n in states.shape[2:]))]
    if states.ndim == 5:
        states = jnp.stack([jnp.take(states, states.shape[a] // 2, axis=a) for a in (2, 3, 4)], axis=2)
    return states.astype(jnp.float16)


def sample_reference(test: Trajectories) -> np.ndarray:
    """The frames of the first trajectory, its initial state first, which `Evaluation.sample` predicts."""
    every = frame_stride(len(test.shape) - 3, test.shape[1] - 1)
    return np.asarray(view(jnp.asarray(test[slice(0, 1), slice(0, None, every)][0])))
