"""SGNO-X for 20,000 steps on every task, and how often its trapping set binds on the test rollouts.

`python validation/test_long_runs.py [STORE]` runs every seed of `results/desk`, or of another store, whose
weights are on this disk, and keeps what it finds in `results/long_runs.json`. The test runs the shipped
models.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgno.io.files import read_json, write_json
from sgno.lab.data.trajectories import load_trajectories
from sgno.lab.machine import machine, versions
from sgno.lab.report.runs import read_store
from sgno.lab.store import Store
from sgno.lab.tasks import TASKS, Task
from sgno.lab.zoo import cards, find
from sgno.sgno_x import SGNOX
from sgno.sgno_x.trapping import touches
from sgno.step import batch, prepare
from sgno.weights import load, read_provenance

RESULTS = Path(__file__).parent.parent / "results"
KEPT = RESULTS / "long_runs.json"
STEPS = 20_000
# States at once: a long run in 2D and 3D is a matter of minutes.
STATES = {1: 30, 2: 4, 3: 2}


class LongRun(NamedTuple):
    """Steps whose state was not finite, the largest root mean square met, and its bound."""

    nonfinite: int
    largest_rms: float
    bound: float


@eqx.filter_jit
def _long(step: SGNOX, u: jax.Array, steps: int):
    ready = prepare(step)
    axes = tuple(range(1, u.ndim))

    def advance(_, carry):
        u, bad, largest = carry
        u = batch(ready, u)
        rms = jnp.sqrt(jnp.mean(u**2, axis=axes)).max()
        return u, bad + ~jnp.isfinite(u).all(), jnp.maximum(largest, rms)

    return jax.lax.fori_loop(0, steps, advance, (u, jnp.zeros((), int), jnp.zeros(())))


def long_run(step: SGNOX, u: np.ndarray, steps: int) -> LongRun:
    assert step.trapping is not None
    _, bad, largest = _long(step, jnp.asarray(u), steps)
    bound = float(jnp.sqrt(jnp.mean(step.trapping.rms_bound() ** 2)))
    return LongRun(int(bad), float(largest), bound)


@eqx.filter_jit
def _binding(step: SGNOX, u: jax.Array, steps: int) -> jax.Array:
    scheme = step.scheme(step.grid.points)
    radius = scheme.w.r
    assert radius is not None

    def advance(v, _):
        v = scheme.advance(v, step.config.inner_steps)
        return v, touches(v, radius).mean()

    return jax.lax.scan(advance, scheme.enter(u), None, length=steps)[1]


def binding(step: SGNOX, test: np.ndarray) -> float:
    """The fraction of modes, over all steps of the test rollouts, that lie on the set's edge."""
    return float(_binding(step, jnp.asarray(test[:, 0]), test.shape[1] - 1).mean())


def examine(step: SGNOX, task: Task) -> dict[str, Any]:
    test = load_trajectories(task).test
    return {
        "steps": STEPS,
        **long_run(step, test[: STATES[task.num_spatial_dims], 0], STEPS)._asdict(),
        "binding": binding(step, test),
    }


@pytest.mark.parametrize("name", [card.name for card in cards() if card.name.endswith("/sgno-x")])
def test_a_shipped_step_stays_bounded_and_its_set_does_not_bind(name):
    step = load(find(name))
    assert isinstance(step, SGNOX)
    found = examine(step, Task.from_json(read_provenance(find(name))["job"]["task"]))
    assert found["nonfinite"] == 0 and found["largest_rms"] <= found["bound"]
    assert found["binding"] == 0


def main(root: Path) -> None:
    store = Store(root)
    for run in read_store(store.root).runs:
        label = f"{run.task['name']} {run.model} seed {run.seed}, {run.train['updates']} updates"
        weights = store.weights(run.id)
        known = run.task["name"] in TASKS and run.model in ("sgno-x", "sgno-x-start")
        kept = read_json(KEPT) if KEPT.is_file() else {"runs": {}}
        if not known or run.id in kept["runs"] or not weights.is_file():
            continue
        step = load(weights)
        assert isinstance(step, SGNOX)
        found = examine(step, Task.from_json(run.task))
        # Read again, since another store may be examined at the same time.
        kept = read_json(KEPT) if KEPT.is_file() else {"runs": {}}
        kept["runs"][run.id] = {"run": label, **found}
        kept |= {"versions": versions(), "machine": machine()}
        write_json(KEPT, kept)
        print(json.dumps({"run": label, **found}))
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "desk")
