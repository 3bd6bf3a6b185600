"""A task as APEBench has it: the scenario that makes its data, its solver, its linear part."""

import dataclasses
from typing import Any

import numpy as np

from sgno.errors import InputError, require
from sgno.lab.tasks import Task, freeze
from sgno.step import Step


def make_scenario(task: Task) -> Any:
    """The APEBench scenario of a task.

    **Raises:** `InputError` if APEBench refuses the settings.
    """
    apebench = require("apebench", "paper", f"Making the data of {task.name}")

    try:
        return apebench.scenarios.scenario_dict[task.scenario](
            num_spatial_dims=task.num_spatial_dims,
            num_points=task.num_points,
            num_train_samples=task.num_train_samples,
            train_temporal_horizon=task.train_steps,
            train_seed=task.train_seed,
            num_test_samples=task.num_test_samples,
            test_temporal_horizon=task.test_steps,
            test_seed=task.test_seed,
            **dict(task.settings),
        )
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InputError(f"APEBench cannot make the data of {task.name}: {error}") from error


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


def true_symbol(task: Task) -> np.ndarray:
    """dt L(k), the linear part of the task's equation over one step, `(channels or 1, *modes)`.

    What the equation's nonlinear part does to a mode is not in it.
    """
    exponax = require("exponax", "paper", f"The equation of {task.name}")

    stepper = make_scenario(task).get_ref_stepper()
    # A reference with substeps holds the stepper of one substep.
    inner = stepper.stepper if isinstance(stepper, exponax.RepeatedStepper) else stepper
    derivatives = exponax.spectral.build_derivative_operator(
        task.num_spatial_dims, inner.domain_extent, task.num_points
    )
    return stepper.dt * np.asarray(inner._build_linear_operator(derivatives))
