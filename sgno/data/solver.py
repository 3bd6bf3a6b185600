"""The reference solver of a task as a step, with any number of substeps."""

import dataclasses

import equinox as eqx
from jaxtyping import Array, Float

from sgno.data.scenario import make_scenario
from sgno.errors import InputError
from sgno.models.step import AbstractStep
from sgno.tasks import Task
from sgno.tasks.task import freeze


class Solver(AbstractStep):
    """One step of exponax: what made the data, or a cheaper version of it."""

    stepper: eqx.Module

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.stepper(u)  # pyright: ignore[reportCallIssue]


def solver(task: Task, substeps: int | None = None) -> Solver:
    """The solver that makes a task's data, or the same with another number of substeps.

    **Raises:** `InputError` if substeps are asked of a scenario that has none.
    """
    if substeps is not None:
        if "num_substeps" not in type(make_scenario(task)).__dataclass_fields__:
            raise InputError(f"{task.name} has no substeps to choose. Use kolm2d, for example.")
        settings = freeze({**dict(task.settings), "num_substeps": substeps})
        task = dataclasses.replace(task, settings=settings)
    return Solver(make_scenario(task).get_ref_stepper())
