"""Trajectories of an equation, many at a time, with inputs that change in time, in double precision."""

from collections.abc import Mapping, Sequence

import numpy as np

from sgno.errors import InputError
from sgno.identify.equation.flow import Inputs, System, Tables, advance, box_of
from sgno.identify.equation.terms import Equation
from sgno.spectral import to_modes, to_points


def simulate(
    equation: Equation,
    u0: np.ndarray,
    *,
    steps: int,
    dt: float | np.ndarray,
    inputs: Mapping[str, np.ndarray] | None = None,
    holds: Sequence[str] = (),
) -> np.ndarray:
    """The states `(samples, steps + 1, C, *points)` that follow from `u0`, `(samples, C, *points)`.

    `EquationStep` is the same scheme as a step for one state, in JAX.

    **Arguments:**

    - `dt`: the time of a step: a number, or one for each sample.
    - `inputs`, `holds`: as in `discover`, with `steps + 1` frames where they change in time.

    **Raises:** `InputError` for inputs that the equation needs and does not get.
    """
    samples, channels, *points = u0.shape
    box = box_of(equation, tuple(points))
    given = {**equation.field_values(box.points), **(inputs or {})}
    known = Inputs(as_inputs(given, samples, steps + 1, box.points), box, frozenset(holds))
    if missing := [n for n in equation.inputs if n not in known.arrays]:
        raise InputError(f"The equation needs the input '{missing[0]}'. Give it in inputs.")
    system = System(equation.terms, box, channels, known)
    coefficients = np.array(equation.coefficients, float)
    times, which = np.broadcast_to(np.asarray(dt, float), samples), np.arange(samples)
    substeps = equation.substeps(times.max())
    tables = Tables.make(system.generator(coefficients, which), times / substeps)
    v = to_modes(u0.astype(float), box.points) * box.inner()
    states = [u0.astype(float)]
    for frame in np.arange(steps):
        at = np.full(samples, frame)
        v, _ = advance(system, coefficients, tables, v, samples=which, frame=at, substeps=substeps)
        with np.errstate(over="ignore", invalid="ignore"):
            states.append(to_points(v, box.points))
    return np.stack(states, 1)


def as_inputs(
    inputs: Mapping[str, np.ndarray], samples: int, frames: int, points: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Every input as `(samples or 1, frames or 1, *points or 1s)`."""
    ones = (1,) * len(points)
    out = {}
    for name, given in inputs.items():
        a = np.asarray(given, float)
        full = {
            (): (1, 1, *ones),
            (samples,): (samples, 1, *ones),
            points: (1, 1, *points),
            (samples, *points): (samples, 1, *points),
            (samples, frames): (samples, frames, *ones),
            (samples, frames, *points): (samples, frames, *points),
        }.get(a.shape)
        if full is None:
            raise InputError(
                f"Input '{name}' has the shape {a.shape}, but there are {samples} samples, {frames} frames "
                f"and {points} points. Give (samples,), (*points), (samples, *points) or one with frames."
            )
        out[name] = a.reshape(full)
    return out
