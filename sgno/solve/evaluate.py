"""Score a step against reference trajectories, without holding its predictions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sgno.solve.advance import advance_batch
from sgno.solve.errors import correlation, nrmse
from sgno.solve.monitor import Reference, Signals, observe
from sgno.solve.scores import gmean, mean_over_trajectories, nonfinite_steps, stable_step
from sgno.solve.spectra import SpectralErrors, energy_spectrum, spectral_errors
from sgno.spectral import to_modes
from sgno.step import Step, prepare

# Reference states brought to the device at once, in numbers: 64 MB in float32.
_CHUNK_NUMBERS = 16_000_000


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Errors of a closed-loop rollout, `(times, trajectories)` each, and spectra `(times, radius)`.

    `signals` are those of the monitor, if there was one.
    """

    nrmse: np.ndarray
    correlation: np.ndarray
    spectral: SpectralErrors
    spectrum: np.ndarray
    reference_spectrum: np.ndarray
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
    reference: np.ndarray,
    *,
    precision: str = "float32",
    watch: Reference | None = None,
) -> Evaluation:
    """Roll out from the first state of each reference trajectory and compare step by step.

    **Arguments:**

    - `step`: any step.
    - `reference`: `(trajectories, times, channels, *points)`, possibly a memory map: it is read in pieces.
    - `precision`: dtype of the rollout.
    - `watch`: `reference_statistics` of the training data, to watch the rollout by as one without a truth.

    **Returns:**

    An `Evaluation` over `times - 1` steps. Non-finite predictions stay in it as such.
    """
    num_steps = reference.shape[1] - 1
    per_step = int(np.prod(reference.shape)) // reference.shape[1]
    chunk = int(np.clip(_CHUNK_NUMBERS // per_step, 1, num_steps))
    # One length for all pieces but the last, so that the scan compiles at most twice.
    u = jnp.asarray(reference[:, 0], precision)
    start = None if watch is None else to_modes(u, u.shape[2:])
    pieces = []
    for first in range(1, num_steps + 1, chunk):
        truth = np.moveaxis(reference[:, first : first + chunk], 1, 0)
        times = jnp.arange(first, first + len(truth))
        u, piece = _compare(step, u, (times, jnp.asarray(truth, precision)), watch, start)
        pieces.append(jax.tree.map(np.asarray, piece))
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)
    return Evaluation(*joined)


@eqx.filter_jit
def _compare(step: Step, u: Array, truth: tuple[Array, Array], watch: Reference | None, start: Array | None):
    prepared = prepare(step)

    def body(u, at):
        t, target = at
        u = advance_batch(prepared, u)
        compared = (
            nrmse(u, target),
            correlation(u, target),
            spectral_errors(u, target),
            energy_spectrum(u),
            energy_spectrum(target),
            None if watch is None or start is None else observe(watch, start, t, u),
        )
        return u, compared

    return jax.lax.scan(body, u, truth)
