"""Accuracy against cost: SGNO-X with few inner steps, and the solver with few substeps, in one run."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sgno.engine import advance
from sgno.io.files import finite, write_json
from sgno.lab.data.scenario import solver
from sgno.lab.data.trajectories import load_trajectories
from sgno.lab.job import TAU, Job, run_job
from sgno.lab.machine import machine, versions
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.lab.tasks import Task
from sgno.registry import get_model
from sgno.sgno_x import SGNOXConfig
from sgno.solve.evaluate import evaluate
from sgno.solve.metrics import HORIZON
from sgno.step import Step
from sgno.weights import load

MODEL = "sgno-x-start"


class Runner(NamedTuple):
    """A step to time: its name, and how often it divides a step."""

    name: str
    divisions: int
    step: Step


def frontier(
    task: Task,
    store: Store,
    *,
    substeps: Sequence[int],
    inner_steps: Sequence[int],
    repeats: int,
    steps: int,
    cache: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure both families and write the result to the store.

    SGNO-X is fitted by its best recipe, once for each number of inner steps (`MODEL`, through the store: a
    finished fit is not made again). All steps are compiled first; then each advances all test states in turn,
    `repeats` times over, so that whatever disturbs the machine disturbs all of them.

    **Returns:** what was written.
    """
    data = load_trajectories(task, cache)
    u = jnp.asarray(data.test[:, 0])
    runners = [Runner("exponax", n, solver(task, n)) for n in substeps]
    for S in inner_steps:
        say(f"SGNO-X with {S} inner step(s): fitting")
        runners.append(Runner("sgno-x", S, _fitted(task, S, store, cache)))
    for runner in runners:
        advance(runner.step, u, 1)
    seconds: dict[int, list[float]] = {i: [] for i in range(len(runners))}
    for repeat in range(repeats):
        say(f"timing, round {repeat + 1} of {repeats}")
        for i, runner in enumerate(runners):
            start = time.perf_counter()
            advance(runner.step, u, steps).block_until_ready()
            seconds[i].append((time.perf_counter() - start) / steps)
    points = []
    for i, runner in enumerate(runners):
        say(f"scoring {runner.name} {runner.divisions}")
        points.append({**_score(runner, data.test), "seconds_per_step": statistics.median(seconds[i]),
                       "seconds_low": min(seconds[i]), "seconds_high": max(seconds[i])})  # fmt: skip
    content = {
        "task": task.to_json(),
        "states": int(u.shape[0]),
        "steps": steps,
        "repeats": repeats,
        "points": points,
        "versions": versions(),
        "machine": machine(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(store.frontier, content)
    return content


def _fitted(task: Task, S: int, store: Store, cache: Path | None) -> Step:
    config = get_model(MODEL, task.num_spatial_dims)
    assert isinstance(config, SGNOXConfig)
    config = dataclasses.replace(config, inner_steps=S)
    job = Job(task, f"{MODEL}-s{S}", config, TrainConfig.for_model(config))
    run_job(job, store, cache=cache)
    return load(store.weights(job.id))


def _score(runner: Runner, test: np.ndarray) -> dict[str, Any]:
    scored = evaluate(runner.step, test[:, : HORIZON + 1])
    learned = runner.name == "sgno-x"
    return {
        "name": runner.name,
        "divisions": runner.divisions,
        "stages": runner.step.config.stages if learned else None,  # pyright: ignore[reportAttributeAccessIssue]
        "gmean100": finite(scored.gmean100),
        "stable_step": scored.stable_step(TAU),
        "nonfinite_steps": scored.nonfinite_steps,
        "numbers": sum(x.size for x in jax.tree.leaves(eqx.filter(runner.step, eqx.is_inexact_array)))
        if learned
        else None,
    }
