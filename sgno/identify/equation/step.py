"""An equation as a step: `u(t) -> u(t + dt)` at any dt, on any grid, with its inputs bound."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PRNGKeyArray, PyTree

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.identify.equation.flow import Inputs, System, Tables, box_of
from sgno.identify.equation.terms import Equation, Factor, channel_names, lengths_of
from sgno.io.survey import Normalise
from sgno.spectral import shared_index, to_modes, to_points
from sgno.step import ParameterCount, count_parameters, trainable

State = Complex[Array, "channels *modes"]


@dataclasses.dataclass(frozen=True)
class EquationConfig(ModelConfig):
    """SGNO-X in equation form: a PDE whose terms are found from the trajectories (`discover`), as a step.

    **Arguments:**

    - `dt`: the time between two frames, in the unit that the coefficients are to have.
    - `length`: of the periodic box, a number or one for each axis.
    - `equation`: what was found; None before the trajectories were seen. The step is then persistence.
    - `found`: whether held-out data support the equation.
    - `held_out`: the closed-loop relative error on held-out trajectories.
    - `notes`: what a user should know of it, one line each.
    """

    kind: ClassVar[str] = "equation"
    units: ClassVar[Normalise] = "none"
    takes_inputs: ClassVar[bool] = False

    dt: float = 1.0
    length: float | tuple[float, ...] = 1.0
    equation: Equation | None = None
    found: bool | None = None
    held_out: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        if not 0 < self.dt < math.inf:
            raise InputError(f"dt={self.dt} of an equation must be positive.")
        lengths_of(self.length, 1 if isinstance(self.length, int | float) else len(self.length))

    def build(self, grid: Grid, *, key: PRNGKeyArray | None = None) -> "EquationStep":
        del key
        equation = self.equation
        if equation is None:
            lengths = lengths_of(self.length, grid.num_spatial_dims)
            equation = Equation((), (), channel_names(grid.channels), lengths, self.dt)
        if len(equation.channels) != grid.channels or len(equation.lengths) != grid.num_spatial_dims:
            raise InputError(
                f"The equation is for {len(equation.channels)} channels and {len(equation.lengths)} axes, "
                f"but the states have {grid.channels} and {grid.num_spatial_dims}."
            )
        return EquationStep(equation, grid.points, dt=self.dt, config=self)

    def recipe(self) -> Mapping[str, Any]:
        return {"updates": 0}


class EquationStep(eqx.Module):
    """One step of a PDE given by its terms, by the scheme that found it (`flow.py`).

    The step of exponential Runge-Kutta divides dt into the inner steps that the equation asks for.

    **Arguments:**

    - `equation`: terms and coefficients in the user's units.
    - `points`: of the periodic grid; the sides of the box are the equation's.
    - `dt`: the time that one step takes.
    - `inputs`: the known inputs: numbers, or fields `(*points)`. Inputs that change with time are given to
      each call instead.
    - `substeps`: inner steps; by default as many as keep each within `equation.max_step`.
    - `config`: the settings that the step carries, if they say more than these.

    **Raises:** `InputError` for inputs that the equation does not have, or of another shape.
    """

    tables: tuple[Float[Array, "channels channels *modes 2"], ...]
    bound: dict[str, Array]
    equation: Equation = eqx.field(static=True)
    config: EquationConfig = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)
    dt: float = eqx.field(static=True)
    substeps: int = eqx.field(static=True)

    def __init__(
        self,
        equation: Equation,
        points: tuple[int, ...],
        *,
        dt: float,
        inputs: Mapping[str, float | np.ndarray] | None = None,
        substeps: int | None = None,
        config: EquationConfig | None = None,
    ):
        self.equation = equation
        self.config = config or EquationConfig(dt, equation.lengths, equation)
        self.grid = Grid(len(equation.channels), tuple(points))
        self.dt = dt
        self.substeps = substeps or equation.substeps(dt)
        self.bound = {}
        ones = (1,) * len(points)
        for name, value in (inputs or {}).items():
            if name not in equation.inputs:
                known = ", ".join(equation.inputs) or "none"
                raise InputError(f"The equation has no input '{name}'. Its inputs: {known}.")
            if np.shape(value) not in ((), tuple(points)):
                raise InputError(
                    f"Input '{name}' has the shape {np.shape(value)}, not () or {tuple(points)}."
                )
            self.bound[name] = jnp.broadcast_to(jnp.asarray(value, float), np.shape(value) or ones)
        system = self._system()
        generator = system.generator(np.array(equation.coefficients), np.zeros(1, int))
        made = Tables.make(generator, np.array([dt / self.substeps]))
        # Only the change is stored and added: the rounding of exp(h Lambda) itself would be the same in every
        # step, and add up over a rollout.
        C = self.grid.channels
        identity = np.eye(C).reshape(C, C, *(1,) * len(points))
        rows = (made.whole - identity, made.half - identity, made.inner, made.first, made.middle, made.last)
        self.tables = tuple(jnp.asarray(np.stack([r[0].real, r[0].imag], -1)) for r in rows)

    def _system(self) -> System:
        """Which terms are linear, and their symbols, on the host; parameters must be numbers there."""
        box = box_of(self.equation, self.grid.points)
        known = {**self.equation.field_values(box.points), **self.bound}
        arrays = {n: np.asarray(a, float)[None, None] for n, a in known.items()}
        return System(self.equation.terms, box, self.grid.channels, Inputs(arrays, box))

    def bind(self, **inputs: float | np.ndarray) -> "EquationStep":
        """The same equation with these inputs."""
        merged = {**{n: np.asarray(a).squeeze() for n, a in self.bound.items()}, **inputs}
        return EquationStep(
            self.equation,
            self.grid.points,
            dt=self.dt,
            inputs=merged,
            substeps=self.substeps,
            config=self.config,
        )

    def at(self, dt: float) -> "EquationStep":
        """The same equation with another time for a step."""
        config = dataclasses.replace(self.config, dt=dt)
        inputs = {n: np.asarray(a).squeeze() for n, a in self.bound.items()}
        return EquationStep(self.equation, self.grid.points, dt=dt, inputs=inputs, config=config)

    def __call__(
        self, u: Float[Array, "channels *points"], controls: Mapping[str, Array] | None = None
    ) -> Float[Array, "channels *points"]:
        """**Arguments:** `controls`: values `(2, *points)` or `(2, 1, ...)` of further inputs at the start
        and at the end of the step, linear in between."""
        controls = dict(controls or {})
        missing = [n for n in self.equation.inputs if n not in self.bound and n not in controls]
        if missing:
            raise InputError(f"The equation needs the input '{missing[0]}'. Bind it, or give it to the call.")
        system = self._system_with(controls)
        whole, half, inner, first, middle, last = (jax.lax.complex(t[..., 0], t[..., 1]) for t in self.tables)
        apply = lambda table, v: _multiply(table.astype(v.dtype), v)

        def substep(v: State, s: Array) -> tuple[State, None]:
            at = lambda x, offset: rates(self.equation, system, x, self._inputs_at(controls, s + offset))
            n1 = at(v, 0.0)
            halfway = v + apply(half, v)
            a = halfway + apply(inner, n1)
            n2 = at(a, 0.5)
            n3 = at(halfway + apply(inner, n2), 0.5)
            n4 = at(a + (apply(half, a) + apply(inner, 2 * n3 - n1)), 1.0)
            return v + (apply(whole, v) + apply(first, n1) + apply(middle, n2 + n3) + apply(last, n4)), None

        keep = jnp.asarray(system.box.inner())
        v, _ = jax.lax.scan(
            substep, to_modes(u, self.grid.points) * keep, jnp.arange(self.substeps, dtype=u.dtype)
        )
        return to_points(v, self.grid.points)

    def _system_with(self, controls: Mapping[str, Array]) -> System:
        # A control is no parameter, whatever its shape: a placeholder of two frames says so.
        box = box_of(self.equation, self.grid.points)
        ones = (1,) * box.dims
        known = {**self.equation.field_values(box.points), **self.bound}
        arrays = {n: np.zeros((1, 1, *a.shape)) for n, a in known.items()}
        arrays |= {n: np.zeros((1, 2, *ones)) for n in controls}
        return System(self.equation.terms, box, self.grid.channels, Inputs(arrays, box))

    def _inputs_at(self, controls: Mapping[str, Array], place: Array) -> dict[str, Array]:
        theta = place / self.substeps
        fields = {n: jnp.asarray(a) for n, a in self.equation.field_values(self.grid.points).items()}
        return {**fields, **self.bound, **{n: (1 - theta) * a[0] + theta * a[1] for n, a in controls.items()}}


@trainable.register(EquationStep)
def _(step: EquationStep) -> PyTree[bool]:
    """Nothing: the fit is a least-squares optimum already."""
    return jax.tree.map(lambda _: False, step)


@count_parameters.register(EquationStep)
def _(step: EquationStep) -> ParameterCount:
    """The coefficients: all other numbers follow from them."""
    return ParameterCount(*(len(step.equation.coefficients),) * 2)


def _multiply(table: Array, v: State) -> State:
    return jnp.einsum("ij...,j...->i...", table, v)


def rates(equation: Equation, system: System, v: State, inputs: Mapping[str, Array]) -> State:
    """n(v) of the terms that are not in the generator."""
    box, fine = system.box, system.fine
    coarse_index, fine_index = shared_index(box.points, fine.points)
    values: dict[Factor, Array] = {}

    def refined(w: Array) -> Array:
        padded = jnp.zeros((*w.shape[: w.ndim - box.dims], *fine.modes), w.dtype)
        return to_points(padded.at[fine_index].set(w[coarse_index]), fine.points)

    for f in dict.fromkeys(f for j in system.closure for f in system.terms[j].factors):
        symbol = jnp.asarray(system.symbols[f.order], v.dtype)
        if isinstance(f.field, int):
            values[f] = refined(v[f.field] * symbol)
        elif inputs[f.field].shape != box.points:
            values[f] = inputs[f.field] * (0 if any(f.order) else 1)
        else:
            values[f] = refined(to_modes(inputs[f.field].astype(v.real.dtype), box.points) * symbol)
    out = jnp.zeros_like(v)
    for (target, outer), members in system.groups.items():
        q = jnp.zeros(fine.points, v.real.dtype)
        for j in members:
            q = q + equation.coefficients[j] * math.prod(values[f] for f in system.terms[j].factors)
        back = jnp.zeros(box.modes, v.dtype).at[coarse_index].set(to_modes(q, fine.points)[fine_index])
        out = out.at[target].add(jnp.asarray(system.outer[outer], v.dtype) * back)
    return out
