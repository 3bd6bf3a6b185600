"""An equation as a stepper of exponax, for those who have their work there."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from sgno.errors import InputError, require
from sgno.identify.equation.flow import Inputs, System, box_of
from sgno.identify.equation.step import rates
from sgno.identify.equation.terms import Equation


def exponax_stepper(
    equation: Equation,
    num_points: int,
    *,
    dt: float,
    inputs: Mapping[str, float] | None = None,
    substeps: int | None = None,
    order: int = 4,
) -> Any:
    """The stepper of exponax (extra `paper`) that advances states `(C, *points)` by dt.

    The linear terms of a channel in itself are carried exactly; all others are its nonlinear function, formed
    without aliasing.

    **Arguments:**

    - `num_points`: points along each axis. exponax knows cubes only.
    - `inputs`: the values of the equation's parameters.
    - `substeps`: inner steps; by default as many as keep each within `equation.max_step`.

    **Raises:** `InputError` if exponax is not installed, the box is no cube, or an input is missing.
    """
    ex = require("exponax", "paper", "The stepper")
    dims, channels = len(equation.lengths), len(equation.channels)
    if len(set(equation.lengths)) > 1:
        raise InputError(f"exponax solves on cubes, but the box has the sides {equation.lengths}.")
    given = dict(inputs or {})
    if missing := [n for n in equation.inputs if n not in given]:
        raise InputError(f"The equation needs the input '{missing[0]}'. Give it in inputs.")
    box = box_of(equation, (num_points,) * dims)
    arrays = {n: np.full((1, 1, *(1,) * dims), float(a)) for n, a in given.items()}
    arrays |= {n: a[None, None] for n, a in equation.field_values(box.points).items()}
    system = System(equation.terms, box, channels, Inputs(arrays, box))
    generator = system.generator(np.array(equation.coefficients), np.zeros(1, int))[0]
    each = np.arange(channels)
    # exponax keeps a diagonal generator only.
    diagonal, coupling = generator[each, each].copy(), generator
    coupling[each, each] = 0
    bound = {n: jnp.asarray(a[0, 0]) for n, a in arrays.items()}

    class NonlinearTerms(ex.nonlin_fun.BaseNonlinearFun):
        def __call__(self, u_hat):
            # exponax leaves its transform unscaled.
            v = u_hat / num_points**dims * jnp.asarray(box.inner())
            n = rates(equation, system, v, bound)
            if coupling.any():
                n = n + jnp.einsum("ij...,j...->i...", jnp.asarray(coupling).astype(v.dtype), v)
            return n * num_points**dims

    class EquationStepper(ex.BaseStepper):
        def _build_linear_operator(self, derivative_operator):
            return jnp.asarray(diagonal)

        def _build_nonlinear_fun(self, derivative_operator):
            return NonlinearTerms(dims, num_points)

    inner = substeps or equation.substeps(dt)
    options = {"num_channels": channels, "order": order}
    stepper = EquationStepper(dims, equation.lengths[0], num_points, dt / inner, **options)
    return stepper if inner == 1 else ex.RepeatedStepper(stepper, inner)
