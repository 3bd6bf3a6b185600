"""Score a step on trajectories that need not fit into memory: some of them at a time."""

from collections.abc import Callable

import jax
import numpy as np

from sgno.solve.evaluate import Evaluation, evaluate
from sgno.step import Step

# Numbers of reference states in memory at once: 256 MB in float32.
_BLOCK_NUMBERS = 64_000_000


def evaluate_blocks(
    step: Step,
    read: Callable[[slice], np.ndarray],
    shape: tuple[int, ...],
    *,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """The `Evaluation` over all trajectories, read and rolled out in blocks.

    **Arguments:**

    - `step`: any step.
    - `read`: gives some trajectories, `(samples, times, channels, *points)`.
    - `shape`: the shape of all of them.
    - `on_progress`: hears how many trajectories are done.
    """
    samples = shape[0]
    size = int(np.clip(_BLOCK_NUMBERS // int(np.prod(shape[1:])), 1, samples))
    found = []
    for start in range(0, samples, size):
        chosen = slice(start, min(start + size, samples))
        found.append((chosen.stop - start, evaluate(step, read(chosen))))
        on_progress(chosen.stop)
    weights = [count for count, _ in found]
    parts = [part for _, part in found]
    return Evaluation(
        np.concatenate([part.nrmse for part in parts], axis=1),
        np.concatenate([part.correlation for part in parts], axis=1),
        jax.tree.map(lambda *kind: np.concatenate(kind, axis=1), *(part.spectral for part in parts)),
        np.average([part.spectrum for part in parts], axis=0, weights=weights),
        np.average([part.reference_spectrum for part in parts], axis=0, weights=weights),
    )
