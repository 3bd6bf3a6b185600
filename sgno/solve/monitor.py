"""A watch on a rollout that needs no truth: energy, bands, distance to the training data, and three faults.

The faults are the three ways in which a rollout leaves the right solution in frequency space:

- **amplitude**: energy grows or decays as it never did in training (spectral amplitude distortion);
- **blocking**: energy piles up at high wavenumbers (nonlinear mode-interaction error);
- **phase**: waves travel at another speed than in training (phase misalignment).

What training was like is kept in a `Reference`. Where the training data evolve mode by mode, a step
multiplies each mode by one complex number (advection, dispersion, diffusion): the state expected after t
steps is then known from the initial one, and amplitude and phase are compared with it. Elsewhere phases are
not predictable; amplitude is compared with the energies seen in training, and there is no phase signal.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from sgno.engine import Observer
from sgno.errors import InputError, unknown_name
from sgno.solve.metrics import bands, shells
from sgno.spectral import multiplicity, namespace, to_modes
from sgno.spectral.bases import AnyArray, Either

FAULTS = ("amplitude", "blocking", "phase")
# Part of the amplitude by which the modes that carry the state may differ from what is expected, and radians
# on average over them. Amplitudes off by a make an nRMSE of a, phases off by p one of 2 sin(p / 2): here 0.1
# and 0.3, on either side of the 0.2 up to which a rollout counts as stable.
AMPLITUDE_LIMIT, PHASE_LIMIT = 0.1, 0.3
# Share of the energy that the upper bands may hold: a multiple of the most seen in training, and at least 1 %
# in amplitude. Where nothing is predictable, energies may leave the range of training by ENERGY_FACTOR. All
# chosen on the synthetic rollouts of tests/test_monitor.py: true ones raise no flag over four horizons.
BLOCKING_FACTOR, BLOCKING_FLOOR, ENERGY_FACTOR = 10.0, 1e-4, 2.0
# The data evolve mode by mode if that forecast is this good over a whole training trajectory: half of the
# amplitude limit, so that training data raise no flag themselves.
_COHERENT = AMPLITUDE_LIMIT / 2
# Modes weaker than this part of the strongest have no phase to speak of: rounding, 1e-7 of the strongest,
# turns them by 1e-4 rad a step. Modes weaker than its square are little more than rounding.
_STRONG = 1e-3
# Shells with less of the energy than this are alike: an amplitude of 1e-6, some roundings of float32.
_FLOOR = 1e-12
# The smallest energy whose logarithm is taken, far above the smallest float32.
_TINY = 1e-30


class Reference(eqx.Module):
    """What the training trajectories look like in frequency space.

    - `multiplier`: by which a step multiplies each mode, on average over the training data.
    - `coherent`: whether that forecasts a whole training trajectory.
    - `energy`, `ratio`: smallest and largest log of the energy, and of the energy over the initial one.
    - `decay`: the late decay of the log of the energy, per step; rollouts go on beyond training.
    - `horizon`: steps of a training trajectory.
    - `share`: the largest share of the energy in the upper two bands.
    - `mean`, `spread`, `far`: of log10 shell energies, and the distance that 99 % of training states stay
        below.
    """

    multiplier: Complex[AnyArray, "channels *modes"]
    coherent: Bool[AnyArray, ""]
    energy: Float[AnyArray, " 2"]
    ratio: Float[AnyArray, " 2"]
    decay: Float[AnyArray, ""]
    horizon: Float[AnyArray, ""]
    share: Float[AnyArray, " 2"]
    mean: Float[AnyArray, " shells"]
    spread: Float[AnyArray, " shells"]
    far: Float[AnyArray, ""]
    points: tuple[int, ...] = eqx.field(static=True)


class Signals(NamedTuple):
    """One number per trajectory. `distance` is 1 at the edge of the training data, `phase_error` is NaN where
    phases are not predictable, and the last three say which faults are there."""

    energy: Float[Array | np.ndarray, "*times batch"]
    low: Float[Array | np.ndarray, "*times batch"]
    mid: Float[Array | np.ndarray, "*times batch"]
    high: Float[Array | np.ndarray, "*times batch"]
    distance: Float[Array | np.ndarray, "*times batch"]
    drift: Float[Array | np.ndarray, "*times batch"]
    phase_error: Float[Array | np.ndarray, "*times batch"]
    amplitude: Bool[Array | np.ndarray, "*times batch"]
    blocking: Bool[Array | np.ndarray, "*times batch"]
    phase: Bool[Array | np.ndarray, "*times batch"]


class Watch(NamedTuple):
    """The monitor's memory: the modes at the start, the first step of each of `FAULTS` in each trajectory (0
    while there was none), and whether one of them ends the rollout."""

    start: Complex[Array | np.ndarray, "batch channels *modes"]
    first: Int[Array | np.ndarray, "faults batch"]
    stopped: Bool[Array | np.ndarray, ""]


class Monitor(Observer):
    """Compares every state of a rollout with the training data.

        sgno.rollout(step, u0, 1000, observe=(sgno.Monitor(reference),))

    Its outputs are `Signals`, its memory a `Watch`.
    """

    reference: Reference
    stop_on: Bool[Array, " faults"]

    def __init__(self, reference: Reference, *, stop_on: Iterable[str] = ()):
        """**Arguments:**

        - `reference`: `reference_statistics` of the training data.
        - `stop_on`: faults of `FAULTS` at which a stream ends.
        """
        stop_on = tuple(stop_on)
        for fault in stop_on:
            if fault not in FAULTS:
                raise unknown_name("fault", fault, FAULTS)
        self.reference = reference
        self.stop_on = jnp.asarray([fault in stop_on for fault in FAULTS])

    def init(self, u0):
        start = start_of(self.reference, u0)
        return Watch(start, jnp.zeros((len(FAULTS), len(u0)), jnp.int32), jnp.asarray(False))

    def __call__(self, memory, t, u):
        signals = signals_of(self.reference, memory.start, t, u)
        began = (memory.first == 0) & jnp.stack([getattr(signals, fault) for fault in FAULTS])
        stopped = memory.stopped | jnp.any(began & self.stop_on[:, None])
        return Watch(memory.start, jnp.where(began, t, memory.first), stopped), signals

    def stops(self, memory):
        return memory.stopped


class Numbers(NamedTuple):
    """Of each state: `energy`, the mean over the points of the sum over the channels of u²; `max`, the
    largest |u|; `finite`, whether every value is finite."""

    energy: Float[Array | np.ndarray, "*times batch"]
    max: Float[Array | np.ndarray, "*times batch"]
    finite: Bool[Array | np.ndarray, "*times batch"]


def numbers_of(u: Float[Array, "batch channels *points"]) -> Numbers:
    """The numbers of a batch of states."""
    axes = tuple(range(1, u.ndim))
    energy = jnp.mean(jnp.sum(jnp.square(u), axis=1), axis=tuple(range(1, u.ndim - 1)))
    return Numbers(energy, jnp.max(jnp.abs(u), axis=axes), jnp.all(jnp.isfinite(u), axis=axes))


class Statistics(Observer):
    """Its outputs are `Numbers`, its memory the first step at which each trajectory was not finite, or 0."""

    def init(self, u0):
        return jnp.zeros(len(u0), jnp.int32)

    def __call__(self, memory, t, u):
        now = numbers_of(u)
        return jnp.where((memory == 0) & ~now.finite, t, memory), now


def _energies(v: Any, points: tuple[int, ...]) -> tuple[Any, Any]:
    """The energy in each band, `(batch, 3)`, and its log10 in each integer shell of |k|."""
    xp = namespace(v)
    density = xp.sum(xp.square(xp.abs(v)), axis=1) * xp.asarray(multiplicity(points), dtype=v.real.dtype)
    flat = density.reshape(len(v), -1)
    in_bands = flat @ xp.asarray(np.stack(bands(points)).reshape(3, -1).T, dtype=flat.dtype)
    in_shells = flat @ xp.asarray(shells(points), dtype=flat.dtype)
    total = xp.sum(flat, axis=1, keepdims=True)
    # Relative to the whole and never below rounding, so that empty shells are alike everywhere.
    return in_bands, xp.log10(in_shells / xp.maximum(total, _TINY) + _FLOOR)


def start_of(
    reference: Reference, u0: Float[Either, "batch channels *points"]
) -> Complex[Either, "batch channels *modes"]:
    """The modes of the first states.

    **Raises:** `InputError` if the reference is of other channels or another grid.
    """
    start = to_modes(u0, u0.shape[2:])
    if start.shape[1:] != reference.multiplier.shape:
        raise InputError(
            f"The states have the shape {u0.shape[1:]}, but the data to watch them with have "
            f"{(reference.multiplier.shape[0], *reference.points)}. Give data of the same channels and grid."
        )
    return start


def signals_of(
    reference: Reference,
    start: Complex[Either, "batch channels *modes"],
    t: Int[Array | np.ndarray, "*batch"] | int,
    u: Float[Either, "batch channels *points"],
) -> Signals:
    """The signals of states after `t` steps (one number, or one for each) from states of modes `start`."""
    xp = namespace(u)
    v, weight = to_modes(u, reference.points), xp.asarray(multiplicity(reference.points), dtype=u.dtype)
    in_bands, in_shells = _energies(v, reference.points)
    total = xp.sum(in_bands, axis=1)
    expected = start * _power(xp, reference.multiplier, t)
    size = xp.abs(expected)
    axes = tuple(range(1, v.ndim))
    strong = (size > _STRONG * xp.max(size, axis=axes, keepdims=True)) * weight
    power = strong * size**2
    norm = xp.maximum(xp.sum(power, axis=axes), _TINY)
    off = xp.sqrt(xp.sum(strong * (xp.abs(v) - size) ** 2, axis=axes) / norm)
    turned = xp.sum(power * xp.abs(xp.angle(v * xp.conj(expected))), axis=axes) / norm
    level = xp.log(xp.maximum(total, _TINY))
    begun = xp.log(xp.maximum(xp.sum(xp.abs(start) ** 2 * weight, axis=axes), _TINY))
    outside = xp.maximum(
        _outside(level, reference.energy, reference, t),
        _outside(level - begun, reference.ratio, reference, t),
    )
    drift = xp.where(reference.coherent, off, outside)
    limit = xp.where(reference.coherent, AMPLITUDE_LIMIT, np.log(ENERGY_FACTOR))
    share = in_bands[:, 1:] / xp.maximum(total, _TINY)[:, None]
    most = xp.maximum(BLOCKING_FACTOR * reference.share, BLOCKING_FLOOR)
    phase_error = xp.where(reference.coherent, turned, xp.nan)
    z = (in_shells - reference.mean) / reference.spread
    low, mid, high = in_bands.T
    return Signals(
        energy=total,
        low=low,
        mid=mid,
        high=high,
        distance=xp.sqrt(xp.mean(z**2, axis=1)) / reference.far,
        drift=drift,
        phase_error=phase_error,
        # A state that is not finite has lost its amplitude, whatever else.
        amplitude=~(drift <= limit) | ~xp.isfinite(total),
        blocking=xp.any(share > most, axis=1),
        phase=phase_error > PHASE_LIMIT,
    )


def _outside(x: Any, limits: Any, reference: Reference, t: Any) -> Any:
    """How far a log energy lies outside the range of training, 0 inside; decay may go on after it."""
    xp = namespace(x)
    low = limits[0] + reference.decay * xp.maximum(t - reference.horizon, 0)
    return xp.maximum(xp.maximum(x - limits[1], low - x), 0)


def _power(xp: Any, multiplier: Any, t: Any) -> Any:
    """multiplier^t by modulus and angle, right at 0, for one t or for each of many."""
    t = xp.reshape(xp.asarray(t, dtype=multiplier.real.dtype), (-1, *(1,) * multiplier.ndim))
    return xp.abs(multiplier) ** t * xp.exp(1j * (xp.angle(multiplier) * t))


def reference_statistics(trajectories: np.ndarray) -> Reference:
    """The reference of training trajectories `(samples, times, channels, *points)`, read sample by sample.

    Computed on the host: there is nothing to compile.
    """
    points = trajectories.shape[3:]
    cross = energy = 0.0
    levels, shares, spectra = [], [], []
    for trajectory in trajectories:
        v = to_modes(np.asarray(trajectory, np.float32), points)
        in_bands, in_shells = _energies(v, points)
        cross = cross + (v[1:] * v[:-1].conj()).sum(axis=0)
        energy = energy + (np.abs(v[:-1]) ** 2).sum(axis=0)
        total = np.maximum(in_bands.sum(axis=1), _TINY)
        levels.append(np.log(total))
        shares.append((in_bands[:, 1:] / total[:, None]).max(axis=0))
        spectra.append(in_shells)
    dynamic = energy > _STRONG**4 * np.max(energy)
    multiplier = np.where(dynamic, cross / np.where(dynamic, energy, 1.0), 0.0).astype(np.complex64)
    worst = max(_forecast_error(multiplier, trajectory) for trajectory in trajectories)
    level = np.stack(levels)
    ratio = level - level[:, :1]
    half = level.shape[1] // 2
    rates = (level[:, -1] - level[:, half]) / max(1, level.shape[1] - 1 - half)
    stacked = np.concatenate(spectra)
    mean, spread = stacked.mean(axis=0), np.maximum(stacked.std(axis=0), 0.1)
    distance = np.sqrt((((stacked - mean) / spread) ** 2).mean(axis=1))
    number = lambda x: np.asarray(x, np.float32)
    return Reference(
        multiplier=multiplier,
        coherent=np.asarray(worst < _COHERENT),
        energy=number([level.min(), level.max()]),
        ratio=number([ratio.min(), ratio.max()]),
        decay=number(min(0.0, float(np.median(rates)))),
        horizon=number(level.shape[1] - 1),
        share=number(np.max(shares, axis=0)),
        mean=number(mean),
        spread=number(spread),
        far=number(np.quantile(distance, 0.99)),
        points=points,
    )


def _forecast_error(multiplier: np.ndarray, trajectory: np.ndarray) -> float:
    """|v_T - multiplier^T v_0| / |v_T| over one trajectory."""
    points, last = trajectory.shape[2:], len(trajectory) - 1
    v = to_modes(np.asarray(trajectory[[0, last]], np.float32), points)
    weight = multiplicity(points).astype(np.float32)
    forecast = v[0] * _power(np, multiplier, last)[0]
    norm = lambda x: float(np.sqrt(np.sum(weight * np.abs(x) ** 2)))
    return norm(v[1] - forecast) / max(norm(v[1]), _TINY)


def summary(signals: Signals) -> dict[str, dict[str, int | float | None]]:
    """When each fault began, from signals `(times, trajectories)`: in the first trajectory, in half of them,
    and the part of them that had it at all; None for never."""
    found = {}
    for fault in FAULTS:
        flagged = np.maximum.accumulate(np.asarray(getattr(signals, fault)), axis=0)
        part = flagged.mean(axis=1)
        when = lambda reached: int(np.argmax(reached)) + 1 if reached.any() else None
        found[fault] = {"first": when(part > 0), "half": when(part >= 0.5), "part": float(part[-1])}
    return found
