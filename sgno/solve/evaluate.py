"""Score a step against reference trajectories, without holding its predictions or all of the reference.

The step is rolled out by the engine, and what comes out is compared on the host: the comparison would take
longer to compile than the rollout.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from sgno.engine import ROOM, frames
from sgno.errors import InputError
from sgno.io.source import Source
from sgno.nn.conditioned import Conditioned, conditions
from sgno.progress import tell
from sgno.solve.metrics import (
    SpectralErrors,
    correlation,
    energy_spectra,
    gmean,
    mean_over_trajectories,
    nonfinite_steps,
    nrmse,
    spectral_errors,
    stable_step,
)
from sgno.solve.monitor import Reference, Signals, signals_of, start_of
from sgno.solve.show import score_text, with_error_curve
from sgno.step import Step, visible

# Numbers of reference states on the device at once, and of one time of a block of trajectories: 64 and 16 MB
# in float32.
_CHUNK_NUMBERS, _STATE_NUMBERS = 16_000_000, 4_000_000
# Numbers of states compared at once: a few megabytes stay in the cache.
_SCORED_NUMBERS = 2**18
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

    def __repr__(self) -> str:
        steps, trajectories = self.nrmse.shape
        good = f"below 20 % for {self.stable_step()} of {steps} steps"
        return f"Evaluation(GMean100 {score_text(self.gmean100)}, {good}, {trajectories} trajectories)"

    def _repr_html_(self) -> str:
        return with_error_curve(repr(self), [float(e) for e in self.mean_nrmse])

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
    inputs: Mapping[str, np.ndarray] | None = None,
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
    - `inputs`: the known inputs of the trajectories, for a step that was trained with some.
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
    if isinstance(step, Conditioned):
        reference = conditions(step, reference, inputs)
        times = min(times, reference.shape[1])
    elif inputs:
        raise InputError(f"The step takes no inputs, but got {', '.join(inputs)}. Leave them out.")
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
    """What there is to know of some states and their references, a row for each."""

    nrmse: Float[np.ndarray, " rows"]
    correlation: Float[np.ndarray, " rows"]
    spectral: SpectralErrors
    spectrum: Float[np.ndarray, "rows radius"]
    reference_spectrum: Float[np.ndarray, "rows radius"]
    signals: Signals | None


# A rollout that diverges overflows, and phases of nothing are 0/0: both are results.
@np.errstate(all="ignore")
def _evaluate(
    step: Step, reference, chosen: slice, num_steps: int, precision: str, watch: Reference | None
) -> Evaluation:
    """The evaluation of trajectories whose states of one time fit into memory together."""
    start = np.asarray(reference[chosen, slice(0, 1)])
    shown = slice(visible(step))
    u0 = np.asarray(start[:, 0, shown], precision)
    first_modes = None if watch is None else start_of(watch, u0)
    whole = np.asarray(start[:, 0], precision)
    if isinstance(step, Conditioned):
        whole, step = step.begin(reference, chosen, 1 + num_steps, precision)
    count, size = len(u0), max(1, u0.size)
    room = int(np.clip(_CHUNK_NUMBERS // size, 1, ROOM))
    at_once = max(1, _SCORED_NUMBERS // size)
    done, pieces, sample = 0, [], [start[0][:, shown]]
    every = frame_stride(u0.ndim - 2, num_steps)
    for states in frames(step, whole, num_steps, room=room):
        truth = np.asarray(reference[chosen, slice(done + 1, done + 1 + len(states))], precision)
        truth = np.moveaxis(truth[:, :, shown], 1, 0)
        for i in range(0, len(states), at_once):
            u, target = (x[i : i + at_once].reshape(-1, *u0.shape[1:]) for x in (states, truth))
            t = np.repeat(np.arange(done + i + 1, done + i + 1 + len(u) // count), count)
            pieces.append(_compare(u, target, t, watch, first_modes))
        sample.append(states[np.arange(done + 1, done + 1 + len(states)) % every == 0, 0])
        done += len(states)
        tell("scoring", done, num_steps)
    joined = jax.tree.map(lambda *piece: np.concatenate(piece), *pieces)
    found: _Compared = jax.tree.map(lambda x: x.reshape(-1, count, *x.shape[1:]), joined)
    return Evaluation(
        found.nrmse,
        found.correlation,
        found.spectral,
        found.spectrum.mean(axis=1),
        found.reference_spectrum.mean(axis=1),
        np.concatenate([view(states) for states in sample]),
        found.signals,
    )


def _compare(
    u: np.ndarray, target: np.ndarray, t: np.ndarray, watch: Reference | None, start: np.ndarray | None
) -> _Compared:
    signals = None
    if watch is not None and start is not None:
        signals = signals_of(watch, np.tile(start, (len(u) // len(start), *(1,) * (start.ndim - 1))), t, u)
    errors = nrmse(u, target), correlation(u, target), spectral_errors(u, target)
    return _Compared(*errors, energy_spectra(u), energy_spectra(target), signals)


def frame_stride(num_spatial_dims: int, num_steps: int) -> int:
    """Steps between the frames of a sample."""
    return max(1, num_steps // _FRAMES[num_spatial_dims])


@np.errstate(over="ignore", invalid="ignore")
def view(states: Float[np.ndarray, "times channels *points"]) -> Float[np.ndarray, "times channels *pixels"]:
    """States for pictures, in float16: about 64 points an axis, and in 3D one slice across each axis."""
    states = states[(..., *(slice(None, None, max(1, n // _VIEW_POINTS)) for n in states.shape[2:]))]
    if states.ndim == 5:
        states = np.stack([np.take(states, states.shape[a] // 2, axis=a) for a in (2, 3, 4)], axis=2)
    return states.astype(np.float16)


def sample_reference(test: Trajectories, channels: int | None = None) -> np.ndarray:
    """The frames of the first trajectory, its initial state first, which `Evaluation.sample` predicts; the
    first `channels` of its states, all by default."""
    every = frame_stride(len(test.shape) - 3, test.shape[1] - 1)
    return view(np.asarray(test[slice(0, 1), slice(0, None, every)])[0][:, :channels])
