"""Float32 against float64 over a rollout of every task, and the same bits with one worker and with two."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from jax import enable_x64
from tiny_study import result, tiny_job

from sgno.identify import warm_start
from sgno.lab.data import load_trajectories
from sgno.lab.executor import run_study
from sgno.lab.local import LocalProcesses
from sgno.lab.store import Store
from sgno.lab.tasks import TASKS, get_task
from sgno.registry import get_model
from sgno.solve import evaluate

POINTS = {1: 160, 2: 64, 3: 32}
STEPS = 50


@pytest.mark.parametrize("name", list(TASKS))
def test_float32_rollouts_follow_float64_ones(name, tmp_path):
    """The closed-form fit of each task, so that the step is a good one whatever the task."""
    task = get_task(name)
    task = task.with_options(
        num_points=POINTS[task.num_spatial_dims], num_train_samples=10, num_test_samples=2, test_steps=STEPS
    )
    data = load_trajectories(task, tmp_path)
    config = get_model("linear", task.num_spatial_dims)
    step = warm_start(
        config.build(data.grid, key=jax.random.PRNGKey(0)), data.train, key=jax.random.PRNGKey(1)
    )
    single = evaluate(step, data.test)
    with enable_x64(True):
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)).astype(_wider(x)), step)
        double = evaluate(wide, data.test, precision="float64")
    # Each step adds a few roundings of 6e-8, which a stable step carries along.
    assert np.abs(single.nrmse - double.nrmse).max() < 1e-4 * (1 + double.nrmse.max())


def _wider(leaf):
    wider = {"float32": jnp.float64, "complex64": jnp.complex128}
    return wider.get(str(leaf.dtype), leaf.dtype)


def test_one_worker_and_two_leave_the_same_bits(tmp_path):
    jobs = [tiny_job(seed, 200) for seed in range(4)]
    for workers in (1, 2):
        with LocalProcesses(workers) as executor:
            run_study(jobs, Store(tmp_path / str(workers)), executor, cache=tmp_path / "cache")
    for job in jobs:
        assert result(Store(tmp_path / "1"), job.id) == result(Store(tmp_path / "2"), job.id)
