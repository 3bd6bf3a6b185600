"""A certificate: constants of a trained step that hold for every input, for many seeds at once."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sgno.errors import InputError
from sgno.io.files import finite
from sgno.nn.layer import norms_of
from sgno.nn.normalised import Normalised
from sgno.nn.sgno import SGNO, PreparedSGNO
from sgno.sgno_x import SGNOX
from sgno.solve.certificates.bounds import UNIT_ROUNDOFF, raised
from sgno.solve.certificates.sgno import SGNOConstants, parts, sgno_constants
from sgno.solve.certificates.sgno_rounding import sgno_rounding
from sgno.solve.certificates.sgno_x import SGNOXConstants, sgno_x_constants
from sgno.solve.certificates.sgno_x_rounding import sgno_x_rounding
from sgno.solve.certificates.units import Units
from sgno.step import Step, batch, prepare


@dataclasses.dataclass(frozen=True)
class Certificate:
    """For all states u, v of the grid, with |.| the discrete L2 norm sqrt(sum_c mean_x u_c(x)²),

        |f(u) - f(v)| <= step |u - v|                                    in real arithmetic,
        |fl(u) - fl(v)| <= step |u - v| + a (|u| + |v|) + 2 b             as evaluated, (a, b) = rounding.

    `f` is the step with the coefficients it computes from its stored weights; transforms are unitary in this
    norm. `fl` is its evaluation in IEEE arithmetic of the weights' precision (matrix products of reduced
    precision, the default of some accelerators, round more), as long as nothing overflows. `constants` are
    those of the model itself; `step`, `radius`, `sup` and `rounding` are in the units of the states, which
    are others if the model was fitted to a user's data.
    """

    kind: str
    points: tuple[int, ...]
    precision: str
    constants: SGNOConstants | SGNOXConstants
    rounding: tuple[float, float]
    units: Units | None = None

    @property
    def step(self) -> float:
        """The sharpest Lipschitz constant that is certified."""
        inner = self.constants.step
        residual = isinstance(self.constants, SGNOConstants)
        return inner if self.units is None else self.units.lipschitz(inner, residual=residual)

    @property
    def radius(self) -> tuple[float, ...] | None:
        """No channel of a state after a step has a larger root mean square; None without such a bound."""
        return self._in_units(self.constants.radius) if isinstance(self.constants, SGNOXConstants) else None

    @property
    def sup(self) -> tuple[float, ...] | None:
        """Nor a larger value."""
        return self._in_units(self.constants.sup) if isinstance(self.constants, SGNOXConstants) else None

    @property
    def ball(self) -> float:
        """No state after a step has a larger norm; infinite where nothing guarantees that."""
        return math.inf if self.radius is None else math.sqrt(sum(r * r for r in self.radius))

    def _in_units(self, inner: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return inner if inner is None or self.units is None else self.units.bounds(inner)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; None where a constant is infinite."""
        content = {
            "kind": self.kind,
            "points": list(self.points),
            "precision": self.precision,
            "step": self.step,
            "rounding": {"relative": self.rounding[0], "absolute": self.rounding[1]},
            "trapping_radius": self.ball,
            "constants": dataclasses.asdict(self.constants),
            "units": None if self.units is None else dataclasses.asdict(self.units),
        }
        return finite(content)


def certify(steps: Sequence[Step], points: tuple[int, ...]) -> list[Certificate]:
    """One certificate a step.

    **Arguments:**

    - `steps`: SGNO or SGNO-X steps of one structure, such as the seeds of one setting, in units of their own
        or not; their coefficients are computed together.
    - `points`: the grid of the states.

    **Raises:** `InputError` for any other model: nothing bounds its layers.
    """
    stacked, units = _unwrapped(stack(steps))
    prepared, extra = jax.tree.map(np.asarray, _prepare_all(stacked, points))
    precision = str(jax.tree.leaves(eqx.filter(steps[0], eqx.is_inexact_array))[0].dtype)
    certificates = []
    for i in range(len(steps)):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], (prepared, extra))
        found = _certificate(one[0], one[1], points, precision)
        certificates.append(found if units is None else _with_units(found, units, one[0]))
    return certificates


@functools.singledispatch
def _unwrapped(step: Step) -> tuple[Step, Units | None]:
    """The model inside, and the units around it."""
    return step, None


@_unwrapped.register
def _(step: Normalised):
    return step.step, Units(step.mean, step.scale)


def _with_units(found: Certificate, units: Units, prepared) -> Certificate:
    """The certificate of the same model in the units of the user."""
    unit, b = UNIT_ROUNDOFF[found.precision], found.rounding[1]
    if math.isfinite(found.ball):
        reach = (0.0, found.ball)
    else:
        zero = jnp.zeros((1, len(units.scale), *found.points), found.precision)
        at_zero = np.asarray(eqx.filter_jit(lambda step, u: batch(step, u))(prepared, zero), np.float64)
        # |f(w)| <= Lip |w| + |f(0)|, and what was computed of f(0) is off by b at most.
        reach = (found.step, raised(math.sqrt(float(np.sum(at_zero**2)) / math.prod(found.points))) + b)
    rounding = units.rounding(found.rounding, found.step, reach, unit)
    return dataclasses.replace(found, rounding=rounding, units=units)


def stack(steps: Sequence[Step]) -> Step:
    """Steps of one structure as one step whose arrays have a leading axis of seeds."""
    shape = lambda step: (jax.tree.structure(step), [leaf.shape for leaf in jax.tree.leaves(step)])
    if any(shape(step) != shape(steps[0]) for step in steps):
        raise InputError("The steps differ in more than their weights. Certify one setting at a time.")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)


@eqx.filter_jit
def _prepare_all(stacked: Step, points: tuple[int, ...]):
    return jax.vmap(lambda step: _prepare(step, points))(stacked)


@functools.singledispatch
def _prepare(step: Step, points: tuple[int, ...]) -> tuple[Step, Any]:
    """The step with its coefficients, and what else its constants are computed from."""
    raise InputError(
        f"{type(step).__name__} has no certificate: nothing bounds its layers. Certify an sgno or an sgno-x."
    )


@_prepare.register(SGNO)
def _(step: SGNO, points):
    found = jax.vmap(parts)(step.layers, norms_of(step.layers))
    each = [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(step.config.num_blocks)]
    return prepare(step), tuple(each)


@_prepare.register(SGNOX)
def _(step: SGNOX, points):
    return step.on_grid(points), step.generator().real


@functools.singledispatch
def _certificate(prepared, extra, points: tuple[int, ...], precision: str) -> Certificate:
    raise TypeError(f"{type(prepared).__name__} is not a prepared step with a certificate.")


@_certificate.register(PreparedSGNO)
def _(prepared: PreparedSGNO, extra, points, precision):
    constants = sgno_constants(prepared, extra)
    rounding = sgno_rounding(prepared, constants, points, UNIT_ROUNDOFF[precision])
    return Certificate("sgno", points, precision, constants, rounding)


@_certificate.register(SGNOX)
def _(prepared: SGNOX, extra, points, precision):
    scheme = prepared.scheme(points)
    constants = sgno_x_constants(scheme, prepared.inner_steps(points), extra)
    rounding = sgno_x_rounding(scheme, constants, UNIT_ROUNDOFF[precision])
    return Certificate("sgno-x", points, precision, constants, (0.0, rounding))
