"""A certificate: what is known of a trained step for every input."""

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sgno.errors import InputError
from sgno.io.files import finite
from sgno.nn.linear import Linear
from sgno.nn.normalised import Normalised
from sgno.nn.sgno import SGNO
from sgno.sgno_x import SGNOX
from sgno.solve.certificates.bounds import raised, spectral_norm
from sgno.solve.certificates.sgno import SGNOConstants, sgno_constants
from sgno.solve.certificates.sgno_x import SGNOXConstants, sgno_x_constants
from sgno.step import Step, fault, prepare


@dataclasses.dataclass(frozen=True)
class LinearConstants:
    """Lip(f) = step = max_k ||M(k)||_2."""

    step: float


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What holds for all states u, v of the grid, whatever their size.

    **Bounded.** After any number of steps from any input, float32 included, no channel has a root mean square
    above `radius` or a value above `sup`; both are None where nothing guarantees that.

    **Sensitivity.** |f(u) - f(v)| <= constants.step |u - v| in real arithmetic, with the coefficients that
    are computed from the stored weights. |.| is the discrete L2 norm, each channel in units of its `scale`:
    sqrt( sum_c mean_x (u_c / s_c)² ).

    `linear` says that the step is a linear map (plus a constant): it has no products and no network.
    """

    kind: str
    points: tuple[int, ...]
    linear: bool
    constants: SGNOConstants | SGNOXConstants | LinearConstants
    mean: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def step(self) -> float:
        """The Lipschitz constant that is certified; infinite if there is none."""
        return self.constants.step

    @property
    def radius(self) -> tuple[float, ...] | None:
        """No channel of a state after a step has a larger root mean square."""
        return self._in_units("radius")

    @property
    def sup(self) -> tuple[float, ...] | None:
        """Nor a larger value."""
        return self._in_units("sup")

    @property
    def ball(self) -> float:
        """No state after a step has a larger norm |.|; infinite where nothing guarantees that."""
        radius = getattr(self.constants, "radius", None)
        return math.inf if radius is None else math.sqrt(sum(r * r for r in radius))

    def _in_units(self, name: str) -> tuple[float, ...] | None:
        bounds = getattr(self.constants, name, None)
        if bounds is None:
            return None
        return tuple(raised(s * b + abs(m)) for m, s, b in zip(self.mean, self.scale, bounds, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; None where a constant is infinite."""
        content = {
            "kind": self.kind,
            "points": list(self.points),
            "linear": self.linear,
            "radius": self.radius,
            "sup": self.sup,
            "step": self.step,
            "constants": dataclasses.asdict(self.constants),
            "mean": list(self.mean),
            "scale": list(self.scale),
        }
        return finite(content)


def certify(step: Step, points: tuple[int, ...]) -> Certificate:
    """The certificate of a step on a grid.

    **Arguments:**

    - `step`: an SGNO, an SGNO-X or a linear step, in units of its own or not.
    - `points`: the grid of the states.

    **Raises:** `InputError` for any other model, whose layers nothing bounds, and for weights that are not
        finite or too large: nothing holds for those.
    """
    if wrong := fault(step):
        raise InputError(f"There is no certificate: {wrong}.")
    model, mean, scale = inside(step)
    found = _certificate(model, points)
    if math.isnan(found.step):
        raise InputError("There is no certificate: the coefficients of this step are not finite.")
    channels = model.grid.channels
    return dataclasses.replace(found, mean=mean or (0.0,) * channels, scale=scale or (1.0,) * channels)


@functools.singledispatch
def inside(step: Step) -> tuple[Any, tuple[float, ...], tuple[float, ...]]:
    """The model inside, and the mean and scale of the units around it, empty if there are none."""
    return step, (), ()


@inside.register
def _(step: Normalised):
    return step.step, step.mean, step.scale


@eqx.filter_jit
def _with_coefficients(step: Step, points: tuple[int, ...]) -> Step:
    return step.on_grid(points) if isinstance(step, SGNOX) else prepare(step)


@functools.singledispatch
def _certificate(step: Step, points: tuple[int, ...]) -> Certificate:
    raise InputError(
        f"{type(step).__name__} has no certificate: nothing bounds its layers. Certify an sgno or an sgno-x."
    )


@_certificate.register
def _(step: SGNO, points):
    prepared: Any = jax.tree.map(np.asarray, _with_coefficients(step, points))
    return Certificate("sgno", points, False, sgno_constants(prepared), (), ())


@_certificate.register
def _(step: SGNOX, points):
    scheme = jax.tree.map(np.asarray, _with_coefficients(step, points)).scheme(points)
    constants = sgno_x_constants(scheme, step.inner_steps(points))
    return Certificate("sgno-x", points, not constants.products, constants, (), ())


@_certificate.register
def _(step: Linear, points):
    M = np.asarray(step.M_real, np.float64) + 1j * np.asarray(step.M_imag, np.float64)
    matrices = np.moveaxis(M.reshape(*M.shape[:2], -1), -1, 0)
    return Certificate("linear", points, True, LinearConstants(raised(spectral_norm(matrices))), (), ())
