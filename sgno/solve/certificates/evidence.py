"""A certificate beside what was measured on data, and what follows for a rollout."""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.engine import rollout
from sgno.io.files import finite
from sgno.solve.certificates.certificate import Certificate, inside
from sgno.step import Step, batch, prepare

PROBES, ITERATIONS = 12, 25
# A forecast is called good while its error is at most this part of the smallest true state of the time.
TOLERANCE = 0.1
# How much a step evaluated in floating point may differ from its map, in units of rounding of the largest
# state: no proof, but measured of models of the zoo (results/certificates.json).
ROUNDINGS = 64


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One step against reference trajectories, in the norm of its certificate.

    - `delta`: the largest one-step error |f(u_t) - u_{t+1}| along them.
    - `size`: the smallest norm of their states at each step.
    - `local`: the largest stretch found by power iteration: a *lower* estimate of the local Lipschitz
        constant.
    - `error`: the largest error e_t measured at each step, infinite once a rollout is.
    - `certified`, `indicated`: log10 of the finite-horizon bound with the certified constant and with
        `local`.
    """

    delta: float
    size: np.ndarray
    local: float
    error: np.ndarray
    certified: np.ndarray
    indicated: np.ndarray

    @property
    def holds(self) -> bool:
        """Whether e_t <= the certified bound at every step, as it must be.

        Nothing is claimed of a float32 rollout once the bound itself is beyond what float32 can hold.
        """
        beyond = self.certified > math.log10(np.finfo(np.float32).max)
        return bool(np.all((_log10(self.error) <= self.certified) | beyond))

    def horizon(self, log10_error: np.ndarray) -> int:
        """The number of steps for which an error stays within `TOLERANCE` of the size of the states."""
        return _leading(log10_error <= _log10(TOLERANCE * self.size))

    @property
    def horizons(self) -> dict[str, int]:
        """How long the forecast was good, and how long the two bounds say so."""
        curves = {"measured": _log10(self.error), "certified": self.certified, "indicated": self.indicated}
        return {name: self.horizon(curve) for name, curve in curves.items()}

    @property
    def indication_holds_until(self) -> int:
        """The number of steps up to which the bound of the local estimate was not crossed."""
        return _leading(_log10(self.error) <= self.indicated)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; None where a number is not finite."""
        content = {
            "horizons": self.horizons,
            "delta": self.delta,
            "size": self.size.tolist(),
            "local_lipschitz_at_least": self.local,
            "error": self.error.tolist(),
            "log10_certified_bound": self.certified.tolist(),
            "log10_indicated_bound": self.indicated.tolist(),
            "certified_bound_holds": self.holds,
            "indicated_bound_holds_until_step": self.indication_holds_until,
        }
        return finite(content)


def _log10(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log10(values)


def _leading(true: np.ndarray) -> int:
    """How many entries come before the first that is not true."""
    return int(np.argmin(true)) if not true.all() else len(true)


def gather_evidence(
    step: Step,
    certificate: Certificate,
    reference: np.ndarray,
    *,
    probes: int = PROBES,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> Evidence:
    """Roll a step out along the reference and set the errors beside their bounds.

    **Arguments:**

    - `step`, `certificate`: as given to and returned by `certify`.
    - `reference`: `(samples, times, channels, *points)`.
    - `probes`, `iterations`: of the local estimate.
    """
    model, *_ = inside(step)
    shape = (-1, *(1,) * len(certificate.points))
    mean, scale = (np.reshape(x, shape) for x in (certificate.mean, certificate.scale))
    precision = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    truth = jnp.asarray(np.moveaxis((np.asarray(reference) - mean) / scale, 1, 0), precision)
    key = jax.random.PRNGKey(seed)
    found = eqx.filter_jit(measure)(model, truth, probes=probes, iterations=iterations, key=key)
    measured: Any = jax.tree.map(lambda field: np.asarray(field, np.float64), found)

    largest = lambda x, axis=None: np.where(np.isfinite(x), x, math.inf).max(axis=axis)
    error, delta = largest(measured.error, 1), float(largest(measured.one_step))
    # A state that is no longer finite has no Jacobian.
    stretch = measured.stretch[np.isfinite(measured.stretch)]
    local = float(stretch.max()) if len(stretch) else math.inf
    bound = lambda L: finite_horizon(
        L,
        delta,
        len(error),
        rounding=ROUNDINGS * float(jnp.finfo(precision).eps) / 2,
        size=float(measured.size.max()),
        ball=certificate.ball,
    )
    return Evidence(delta, measured.size[1:].min(axis=1), local, error, bound(certificate.step), bound(local))


def finite_horizon(
    lipschitz: float,
    delta: float,
    num_steps: int,
    *,
    rounding: float = 0.0,
    size: float = 0.0,
    ball: float = math.inf,
) -> np.ndarray:
    """log10 of a bound of e_t for t = 1..num_steps, from e_1 <= delta and

        e_{t+1} <= (L + a) e_t + delta + 2 a U.

    Without rounding this is the paper's recursion e_{t+1} <= L e_t + delta, hence delta (L^t - 1)/(L - 1). In
    logarithms, since L^200 is no floating-point number. A step as evaluated differs from the map that is
    L-Lipschitz by a |u| at the true state, |u| <= U, and at the predicted one, |u| <= U + e_t.

    **Arguments:**

    - `lipschitz`: L, a Lipschitz constant of the step.
    - `delta`: the largest one-step error along the reference.
    - `rounding`: a.
    - `size`: U, the largest norm of a reference state.
    - `ball`: every predicted state has at most this norm, so that e_t <= U + ball.
    """
    with np.errstate(divide="ignore", over="ignore"):
        log_rate, log_cap = float(np.log(lipschitz + rounding)), float(np.log(size + ball))
        first, added = float(np.log(delta + rounding * size)), float(np.log(delta + 2 * rounding * size))
        bound = [min(first, log_cap)]
        for _ in range(num_steps - 1):
            bound.append(min(float(np.logaddexp(log_rate + bound[-1], added)), log_cap))
    return np.asarray(bound) / math.log(10)


class Measured(NamedTuple):
    """Of one step against reference trajectories, all norms root mean squares over points."""

    one_step: Float[Array, "times samples"]
    error: Float[Array, "times samples"]
    size: Float[Array, "times samples"]
    stretch: Float[Array, " states"]


def l2(u: Float[Array, "batch channels *points"]) -> Float[Array, " batch"]:
    """sqrt( sum_c mean_x u_c(x)² )."""
    points = int(np.prod(u.shape[2:]))
    return jnp.sqrt(jnp.sum(jnp.square(u), axis=tuple(range(1, u.ndim))) / points)


def measure(
    step: Step,
    reference: Float[Array, "times samples channels *points"],
    *,
    probes: int,
    iterations: int,
    key: PRNGKeyArray,
) -> Measured:
    """Roll out from the first states of the reference and compare.

    **Arguments:**

    - `reference`: true states, time first.
    - `probes`: how many times along the rollout the stretch is estimated, at the predicted and the true state
        of one sample each.
    - `iterations`: of the power iteration.
    """
    ready = prepare(step)
    states = rollout(ready, reference[0], len(reference) - 1, batched=True)
    error = jax.lax.map(lambda pair: l2(pair[0] - pair[1]), (states, reference[1:]))
    one_step = jax.lax.map(lambda pair: l2(batch(ready, pair[0]) - pair[1]), (reference[:-1], reference[1:]))
    times, samples = reference.shape[0], reference.shape[1]
    at = np.unique(np.linspace(0, times - 2, probes).astype(int))
    sample = np.arange(len(at)) % samples
    probed = jnp.concatenate([reference[at, sample], states[at, sample]])
    keys = jax.random.split(key, len(probed))
    stretch = jax.lax.map(lambda x: local_lipschitz(ready, x[0], iterations, key=x[1]), (probed, keys))
    size = jax.lax.map(l2, reference)
    return Measured(one_step, error, size, stretch)


def local_lipschitz(
    step: Step, u: Float[Array, "channels *points"], iterations: int | Array, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """|J x| / |x| for the Jacobian J of the step at u and a direction x found by power iteration on J^T J.

    The largest singular value of J is approached from below: a lower estimate of the local Lipschitz
    constant, up to rounding. Matrix-free: one Jacobian-vector and one vector-Jacobian product an iteration.
    """
    _, forward = jax.linearize(step, u)
    transpose = jax.linear_transpose(forward, u)

    def unit(x):
        norm = jnp.sqrt(jnp.sum(jnp.square(x)))
        return x / jnp.where(norm > 0, norm, 1)

    def improve(_, x):
        (back,) = transpose(unit(forward(x)))
        return unit(back)

    x = jax.lax.fori_loop(0, iterations, improve, unit(jax.random.normal(key, u.shape, u.dtype)))
    return jnp.sqrt(jnp.sum(jnp.square(forward(x))))
