"""A certificate beside what was measured on data, and what follows for a rollout."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sgno.io.files import finite
from sgno.solve.certificates.certificate import Certificate, stack
from sgno.solve.certificates.horizon import finite_horizon
from sgno.solve.certificates.local import Measured, measure
from sgno.step import Step

PROBES, ITERATIONS = 12, 25
# Norms of differences are taken in float32; their own rounding stays below this.
_MEASURED_MARGIN = 1e-5


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One step against reference trajectories.

    - `delta`: the largest one-step error |f(u_t) - u_{t+1}| along them.
    - `size`: the largest norm of their states.
    - `local`: the largest stretch found by power iteration: a *lower* estimate of the local Lipschitz
        constant.
    - `error`: the largest error e_t measured at each step, infinite once a rollout is.
    - `certified`, `indicated`: log10 of the finite-horizon bound with the certified constant (rounding
        included) and with `local`.
    """

    delta: float
    size: float
    local: float
    error: np.ndarray
    certified: np.ndarray
    indicated: np.ndarray

    @property
    def holds(self) -> bool:
        """Whether e_t <= the certified bound at every step, as it must be.

        Nothing is claimed of a float32 rollout once the bound itself is beyond what float32 can hold.
        """
        with np.errstate(divide="ignore"):
            measured = np.log10(self.error)
        beyond = self.certified > math.log10(np.finfo(np.float32).max)
        return bool(np.all((measured <= self.certified) | beyond))

    @property
    def indication_holds_until(self) -> int:
        """The number of steps up to which the bound of the local estimate was not crossed."""
        with np.errstate(divide="ignore"):
            crossed = ~(np.log10(self.error) <= self.indicated)
        return int(np.argmax(crossed)) if crossed.any() else len(crossed)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; None where a number is not finite."""
        content = {
            "delta": self.delta,
            "size": self.size,
            "local_lipschitz_at_least": self.local,
            "error": self.error.tolist(),
            "log10_certified_bound": self.certified.tolist(),
            "log10_indicated_bound": self.indicated.tolist(),
            "certified_bound_holds": self.holds,
            "indicated_bound_holds_until_step": self.indication_holds_until,
        }
        return finite(content)


def gather_evidence(
    steps: Sequence[Step],
    certificates: Sequence[Certificate],
    reference: np.ndarray,
    *,
    probes: int = PROBES,
    iterations: int = ITERATIONS,
    seed: int = 0,
) -> list[Evidence]:
    """Roll every step out along the reference and set the errors beside their bounds.

    **Arguments:**

    - `steps`, `certificates`: as given to and returned by `certify`.
    - `reference`: `(samples, times, channels, *points)`.
    - `probes`, `iterations`: of the local estimate.
    """
    truth = jnp.asarray(np.moveaxis(np.asarray(reference), 1, 0), certificates[0].precision)
    measured = _measure_all(stack(steps), truth, probes, iterations, jax.random.PRNGKey(seed))
    measured = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), measured)
    return [
        _evidence(certificate, jax.tree.map(lambda leaf, i=i: leaf[i], measured))
        for i, certificate in enumerate(certificates)
    ]


@eqx.filter_jit
def _measure_all(stacked: Step, truth, probes: int, iterations: int, key) -> Measured:
    one = lambda step: measure(step, truth, probes=probes, iterations=iterations, key=key)
    return jax.vmap(one)(stacked)


def _evidence(certificate: Certificate, measured: Measured) -> Evidence:
    error = np.where(np.isfinite(measured.error), measured.error, math.inf).max(axis=1)
    delta = float(np.where(np.isfinite(measured.one_step), measured.one_step, math.inf).max())
    delta *= 1 + _MEASURED_MARGIN
    size = float(measured.size.max()) * (1 + _MEASURED_MARGIN)
    # A state that is no longer finite has no Jacobian.
    found = measured.stretch[np.isfinite(measured.stretch)]
    local = float(found.max()) if len(found) else math.inf
    num_steps = len(error)
    certified = finite_horizon(
        certificate.step,
        delta,
        num_steps,
        rounding=certificate.rounding,
        size=size,
        ball=certificate.ball,
    )
    return Evidence(delta, size, local, error, certified, finite_horizon(local, delta, num_steps))
