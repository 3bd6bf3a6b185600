"""How long a forecast can be trusted, calibrated on trajectories that nothing was fitted to.

Not to be confused with the horizon of certificates, which is a proven bound: this one is a statement with a
probability, by split conformal prediction.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sgno.engine import Observer
from sgno.errors import InputError
from sgno.io.files import finite
from sgno.io.plain import decode
from sgno.solve.evaluate import Evaluation
from sgno.solve.monitor import Monitor, Reference, Watch
from sgno.spectral import mode_shape

LEVEL, PROBABILITY = 0.2, 0.9
# Steps at which the bound is kept: all of the first ones, then a geometric progression of about so many.
_KEPT_STEPS = 200
# A forecast has left the training distribution beyond this multiple of the largest distance at which a
# held-out forecast was still good. Measured: validation/test_horizon.py.
_FURTHER = 1.5
# What is kept of a `Reference`: everything but the multiplier of each mode.
_RANGE = ("energy", "ratio", "decay", "horizon", "share", "mean", "spread", "far")


@dataclasses.dataclass(frozen=True)
class ForecastHorizon:
    """For `steps` steps the error (nRMSE) stays at or below `level`, with at least this `probability`.

    With e_i(t) the error of the i-th of n held-out trajectories and m_i(t) = max_{s <= t} e_i(s),

        bound(t) = the (n + 1 - k)-th smallest m_i(t),   k = floor((n + 1) (1 - probability)),
        steps    = the last t with bound(t) <= level,

    so an unseen trajectory, exchangeable with the held-out ones, stays below the bound up to step t with a
    probability of at least 1 - k / (n + 1).

    - `probability`: what is claimed: `requested`, or n / (n + 1) if there are too few trajectories for it.
    - `trajectories`, `length`: n, and the steps of each.
    - `at`, `bound`: steps, and the bound at each of them. Infinite where a forecast became non-finite.
    """

    level: float
    steps: int
    probability: float
    requested: float
    trajectories: int
    length: int
    at: tuple[int, ...]
    bound: tuple[float | None, ...]

    @property
    def reaches_end(self) -> bool:
        """Whether the held-out trajectories end before the error passes the level: the horizon may be
        longer."""
        return self.steps == self.length

    @property
    def needed(self) -> int:
        """How many held-out trajectories the requested probability takes."""
        return needed_trajectories(self.requested)

    def at_level(self, level: float) -> "ForecastHorizon":
        """The horizon of another error, with the same probability; rounded down to a step of `at`."""
        check_claim(level, self.requested)
        within = [t for t, e in zip(self.at, self.bound, strict=True) if e is not None and e <= level]
        return dataclasses.replace(self, level=level, steps=max(within, default=0))

    def expected_error(self, step: int) -> float:
        """The bound at a step, or at the last step before it that is known."""
        known = [e for t, e in zip(self.at, self.bound, strict=True) if t <= step]
        return math.inf if not known or known[-1] is None else known[-1]

    def __str__(self) -> str:
        least = "at least " if self.reaches_end else ""
        steps = "step" if self.steps == 1 else "steps"
        ends = ", the length of the held-out trajectories" if self.reaches_end else ""
        text = (
            f"Horizon: the error stays below {percent(self.level)} for {least}{self.steps:,} {steps}{ends}, "
            f"with a probability of {percent(self.probability)} ({self.trajectories} held-out trajectories)."
        )
        if self.probability < self.requested:
            text += f" To claim {percent(self.requested)} takes {self.needed} of them."
        return text

    def to_json(self) -> dict[str, Any]:
        return finite(dataclasses.asdict(self))

    @staticmethod
    def from_json(content: Any) -> "ForecastHorizon":
        """**Raises:** `InputError` if it is not what `to_json` gives."""
        return decode(ForecastHorizon, content, "a horizon")


def percent(part: float) -> str:
    """0.2 as "20 %"."""
    return f"{100 * part:.3g} %"


def needed_trajectories(probability: float) -> int:
    """The fewest held-out trajectories from which a probability can be claimed: n / (n + 1) reaches it."""
    return math.ceil(probability / (1 - probability) - 1e-9)


def calibrate(
    errors: Sequence[np.ndarray],
    *,
    level: float = LEVEL,
    probability: float = PROBABILITY,
) -> ForecastHorizon:
    """The horizon that held-out errors allow to claim.

    Trajectories of several lengths are cut to the longest one that enough of them have, a choice that does
    not depend on their errors.

    **Arguments:**

    - `errors`: nRMSE `(times, trajectories)` of each held-out part, such as `Evaluation.nrmse`.
    - `level`: the error that is tolerated.
    - `probability`: with which a forecast shall stay below it.

    **Raises:** `InputError` for a level or a probability that means nothing.
    """
    check_claim(level, probability)
    parts = [np.asarray(part, np.float64) for part in errors]
    lengths = sorted({len(part) for part in parts}, reverse=True)
    count = lambda length: sum(part.shape[1] for part in parts if len(part) >= length)
    enough = (length for length in lengths if count(length) >= needed_trajectories(probability))
    length = next(enough, lengths[-1])
    joined = np.concatenate([part[:length] for part in parts if len(part) >= length], axis=1)
    n = joined.shape[1]
    largest = np.maximum.accumulate(np.where(np.isfinite(joined), joined, np.inf), axis=0)
    k = max(1, math.floor((n + 1) * (1 - probability) + 1e-9))
    bound = np.sort(largest, axis=1)[:, n - k]
    steps = int((bound <= level).sum())
    at = _kept(length, steps)
    return ForecastHorizon(
        level=level,
        steps=steps,
        probability=min(probability, n / (n + 1)),
        requested=probability,
        trajectories=n,
        length=length,
        at=at,
        bound=tuple(float(bound[t - 1]) if np.isfinite(bound[t - 1]) else None for t in at),
    )


def _kept(length: int, steps: int) -> tuple[int, ...]:
    """Steps to keep the bound at, the horizon and the last among them."""
    if length <= _KEPT_STEPS:
        return tuple(range(1, length + 1))
    spread = np.geomspace(_KEPT_STEPS // 2, length, _KEPT_STEPS // 2).astype(int).tolist()
    return tuple(sorted({*range(1, _KEPT_STEPS // 2), *spread, max(steps, 1), length}))


def check_claim(level: float, probability: float) -> None:
    """**Raises:** `InputError` for a level or a probability that means nothing."""
    if not 0 < level < math.inf:
        raise InputError(f"An error of {level:g} means nothing here. Use a part such as 0.2.")
    if not 0 < probability < 1:
        raise InputError(
            f"A probability of {probability} cannot be claimed. Use one between 0 and 1, such as 0.9."
        )


class TrainingRange(Observer):
    """Watches whether a forecast is still among what the model was trained and judged on.

    It is not once the monitor sees a fault of amplitude or blocking, or once the distance to the training
    data passes `limit`. Its memory says after how many steps each trajectory left, -1 while it has not; 0 is
    the initial state itself. Unlike `Monitor` it keeps no multiplier of each mode, so that it fits into the
    header of a weights file.
    """

    monitor: Monitor
    limit: Float[Array, ""]
    until: Int[Array, ""]

    def __init__(self, reference: Reference, limit: float, *, until: int):
        """**Arguments:** `until`: the step after which nobody asks any more."""
        self.monitor = Monitor(reference)
        self.limit = jnp.asarray(limit, jnp.float32)
        self.until = jnp.asarray(until, jnp.int32)

    def init(self, u0):
        return self._look(self.monitor.init(u0), jnp.full(len(u0), -1, jnp.int32), jnp.asarray(0), u0)

    def __call__(self, memory, t, u):
        watch, left = memory
        look = lambda _: self._look(watch, left, t, u)
        return jax.lax.cond(t <= self.until, look, lambda _: memory, None), None

    def _look(self, watch: Watch, left: Array, t: Array, u: Array) -> tuple[Watch, Array]:
        watch, signals = self.monitor(watch, t, u)
        outside = signals.amplitude | signals.blocking | ~(signals.distance <= self.limit)
        return watch, jnp.where((left < 0) & outside, jnp.asarray(t, jnp.int32), left)


def range_to_json(
    reference: Reference, held_out: Sequence[Evaluation], level: float = LEVEL
) -> dict[str, Any]:
    """What `TrainingRange` needs, as plain data: the reference without its multipliers, and how far from the
    training data held-out forecasts went while they were good. They have to be watched evaluations."""
    furthest = 1.0
    for scored in held_out:
        assert scored.signals is not None
        distance = np.asarray(scored.signals.distance)
        good = (
            np.maximum.accumulate(np.where(np.isfinite(scored.nrmse), scored.nrmse, np.inf), axis=0) <= level
        )
        furthest = max(furthest, float(np.max(distance, initial=0, where=good & np.isfinite(distance))))
    numbers = {name: np.asarray(getattr(reference, name)).tolist() for name in _RANGE}
    return finite({**numbers, "points": list(reference.points), "limit": _FURTHER * furthest})


def range_from_json(content: Mapping[str, Any], channels: int, *, until: int) -> TrainingRange:
    """**Raises:** `InputError` if it is not what `range_to_json` gives."""
    try:
        points = tuple(int(n) for n in content["points"])
        reference = Reference(
            multiplier=jnp.zeros((channels, *mode_shape(points)), jnp.complex64),
            coherent=jnp.asarray(False),
            points=points,
            **{name: jnp.asarray(content[name], jnp.float32) for name in _RANGE},
        )
        return TrainingRange(reference, float(content["limit"]), until=until)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"The weights say what training was like in a form that cannot be read ({error}). "
            "Fit the model again, or use --watch with the training data."
        ) from error
