"""Tasks x models x seeds x settings -> jobs."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sgno.errors import InputError
from sgno.lab.job import Job
from sgno.lab.recipe import TrainConfig
from sgno.lab.tasks import Task
from sgno.registry import get_model


class Row(NamedTuple):
    """One task and the models on it, all with the same budget.

    - `train`: options of `TrainConfig.for_model` that hold for every model of the row.
    - `settings`: by model name, fields of its config to replace.
    - `transfer`: by model name, finer grids to score the same weights on.
    """

    task: Task
    models: tuple[str, ...]
    seeds: int
    train: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}
    transfer: Mapping[str, tuple[int, ...]] = {}


def make_jobs(rows: Iterable[Row]) -> tuple[Job, ...]:
    """The jobs of all rows, none twice: seed 0 of everything first, so that a study cut short is a table.

    A model fitted in closed form does not depend on its seed, so it is run once.

    **Raises:** `InputError` if there is nothing to do or a model is unknown.
    """
    jobs: dict[str, Job] = {}
    rows = tuple(rows)
    for seed in range(max((row.seeds for row in rows), default=0)):
        for row in rows:
            for name in row.models:
                job = _job(row, name, seed)
                if seed < row.seeds and (seed == 0 or job.train.updates > 0):
                    jobs.setdefault(job.id, job)
    if not jobs:
        raise InputError("There is no job to run. Choose at least one task, one model and one seed.")
    return tuple(jobs.values())


def _job(row: Row, name: str, seed: int) -> Job:
    model = get_model(name, row.task.num_spatial_dims)
    if changed := row.settings.get(name):
        model = dataclasses.replace(model, **changed)
    train = TrainConfig.for_model(model, **row.train)
    return Job(row.task, name, model, train, seed, row.transfer.get(name, ()))
