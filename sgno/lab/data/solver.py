"""The reference solver of a task as a step, with any number of substeps."""

import dataclasses

from sgno.errors import InputError
from sgno.lab.data.scenario import make_scenario
from sgno.lab.tasks import Task
from sgno.lab.tasks.task import freeze
from sgno.step import Step


def solver(task: Task, substeps: int | None = None) -> Step:
    """The solver that makes a task's data, or the same with another number of substeps.

    **Raises:** `InputError` if substeps are asked of a scenario that has none.
    """
    if substeps is not None:
        if "num_substeps" not in type(make_scenario(task)).__dataclass_fields__:
            raise InputError(f"{task.name} has no substeps to choose. Use kolm2d, for example.")
        settings = freeze({**dict(task.settings), "num_substeps": substeps})
        task = dataclasses.replace(task, settings=settings)
    return make_scenario(task).get_ref_stepper()
