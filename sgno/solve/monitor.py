"""A watch on a rollout that needs no truth: energy, bands, distance to the training data, and three faults.

The faults are the three ways in which a rollout leaves the right solution in frequency space:

- **amplitude**: energy grows or decays as it never did in training (spectral amplitude distortion);
- **blocking**: energy piles up at high wavenumbers (nonlinear mode-interaction error);
- **phase**: waves travel at another speed than in training (phase misalignment).

What training was like is kept in a `Reference`. Where the training data evolve mode by mode, a step
multiplies each mode by one complex number (advection, dispersion, diffusion): the state expected after t
steps is then known from the initial one, and amplitude and phase are held against it. Elsewhere phases are
not predictable; amplitude is held against the energies seen in training, and there is no phase signal.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from sgno.solve.rollout import stream
from sgno.solve.spectra import bands
from sgno.spectral import multiplicity, to_modes, wavenumber_norm
from sgno.step import Step

FAULTS = ("amplitude", "blocking", "phase")
# Part of the amplitude by which the modes that carry the state may differ from what is expected.
AMPLITUDE_LIMIT = 0.1
# Radians, on average over those modes.
PHASE_LIMIT = 0.3
# Share of the energy that the upper bands may hold: ten times the most seen in training, or 1 % in amplitude.
BLOCKING_FACTOR, BLOCKING_FLOOR = 10.0, 1e-4
# Where nothing is predictable, energies may leave the range seen in training by this factor.
ENERGY_FACTOR = 2.0
# The data evolve mode by mode if that forecast is this good over a whole training trajectory.
_COHERENT = 0.05
# Modes weaker than this part of the strongest carry no phase, and weaker than its square no dynamics.
_STRONG = 1e-3
_FLOOR = 1e-12


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

    multiplier: Complex[Array, "channels *modes"]
    coherent: Bool[Array, ""]
    energy: Float[Array, " 2"]
    ratio: Float[Array, " 2"]
    decay: Float[Array, ""]
    horizon: Float[Array, ""]
    share: Float[Array, " 2"]
    mean: Float[Array, " shells"]
    spread: Float[Array, " shells"]
    far: Float[Array, ""]
    points: tuple[int, ...] = eqx.field(static=True)


class Signals(NamedTuple):
    """One number per trajectory. `distance` is 1 at the edge of the training data, `phase_error` is NaN where
    phases are not predictable, and the last three say which faults are there."""

    energy: Float[Array, " batch"]
    low: Float[Array, " batch"]
    mid: Float[Array, " batch"]
    high: Float[Array, " batch"]
    distance: Float[Array, " batch"]
    drift: Float[Array, " batch"]
    phase_error: Float[Array, " batch"]
    amplitude: Bool[Array, " batch"]
    blocking: Bool[Array, " batch"]
    phase: Bool[Array, " batch"]


def _energies(v: Array, points: tuple[int, ...]) -> tuple[Array, Array]:
    """The energy in each band, `(batch, 3)`, and its log10 in each integer shell of |k|."""
    density = jnp.sum(jnp.square(jnp.abs(v)), axis=1) * multiplicity(points).astype(np.float32)
    flat = density.reshape(len(v), -1)
    in_bands = flat @ jnp.asarray(np.stack(bands(points)).reshape(3, -1).T, flat.dtype)
    shell = np.rint(wavenumber_norm(points)).astype(int).reshape(-1)
    onto = jnp.asarray(shell[:, None] == np.arange(min(points) // 2 + 1), flat.dtype)
    total = jnp.sum(flat, axis=1, keepdims=True)
    # Relative to the whole and never below rounding, so that empty shells are alike everywhere.
    return in_bands, jnp.log10((flat @ onto) / jnp.maximum(total, 1e-30) + _FLOOR)


def observe(
    reference: Reference,
    start: Complex[Array, "batch channels *modes"],
    t: Array | int,
    u: Float[Array, "batch channels *points"],
) -> Signals:
    """The signals of states after `t` steps from states with the modes `start`."""
    v, weight = to_modes(u, reference.points), multiplicity(reference.points).astype(np.float32)
    in_bands, shells = _energies(v, reference.points)
    total = jnp.sum(in_bands, axis=1)
    expected = start * _power(reference.multiplier, t)
    size = jnp.abs(expected)
    axes = tuple(range(1, v.ndim))
    strong = (size > _STRONG * jnp.max(size, axis=axes, keepdims=True)) * weight
    power = strong * size**2
    norm = jnp.maximum(jnp.sum(power, axis=axes), 1e-30)
    off = jnp.sqrt(jnp.sum(strong * (jnp.abs(v) - size) ** 2, axis=axes) / norm)
    turned = jnp.sum(power * jnp.abs(jnp.angle(v * jnp.conj(expected))), axis=axes) / norm
    level = jnp.log(jnp.maximum(total, 1e-30))
    begun = jnp.log(jnp.maximum(jnp.sum(jnp.abs(start) ** 2 * weight, axis=axes), 1e-30))
    outside = jnp.maximum(
        _outside(level, reference.energy, reference, t),
        _outside(level - begun, reference.ratio, reference, t),
    )
    drift = jnp.where(reference.coherent, off, outside)
    limit = jnp.where(reference.coherent, AMPLITUDE_LIMIT, np.log(ENERGY_FACTOR))
    share = in_bands[:, 1:] / jnp.maximum(total, 1e-30)[:, None]
    most = jnp.maximum(BLOCKING_FACTOR * reference.share, BLOCKING_FLOOR)
    phase_error = jnp.where(reference.coherent, turned, jnp.nan)
    z = (shells - reference.mean) / reference.spread
    low, mid, high = in_bands.T
    return Signals(
        energy=total,
        low=low,
        mid=mid,
        high=high,
        distance=jnp.sqrt(jnp.mean(z**2, axis=1)) / reference.far,
        drift=drift,
        phase_error=phase_error,
        # A state that is not finite has lost its amplitude, whatever else.
        amplitude=~(drift <= limit) | ~jnp.isfinite(total),
        blocking=jnp.any(share > most, axis=1),
        phase=phase_error > PHASE_LIMIT,
    )


def _outside(x: Array, limits: Array, reference: Reference, t: Array | int) -> Array:
    """How far a log energy lies outside the range of training, 0 inside; decay may go on after it."""
    low = limits[0] + reference.decay * jnp.maximum(t - reference.horizon, 0)
    return jnp.maximum(jnp.maximum(x - limits[1], low - x), 0)


def _power(multiplier: Array, t: Array | int) -> Array:
    """multiplier^t by modulus and angle, right at 0."""
    return jnp.abs(multiplier) ** t * jnp.exp(1j * (jnp.angle(multiplier) * t))


def reference_statistics(trajectories: np.ndarray) -> Reference:
    """The reference of training trajectories `(samples, times, channels, *points)`, read sample by sample."""
    points = trajectories.shape[3:]
    weight = multiplicity(points).astype(np.float32)
    summarise = jax.jit(lambda u: (to_modes(u, points), *_energies(to_modes(u, points), points)))
    cross = energy = 0.0
    levels, shares, shells = [], [], []
    for trajectory in trajectories:
        v, in_bands, in_shells = (np.asarray(x) for x in summarise(jnp.asarray(trajectory, jnp.float32)))
        cross = cross + (v[1:] * v[:-1].conj()).sum(axis=0)
        energy = energy + (np.abs(v[:-1]) ** 2).sum(axis=0)
        total = np.maximum(in_bands.sum(axis=1), 1e-30)
        levels.append(np.log(total))
        shares.append((in_bands[:, 1:] / total[:, None]).max(axis=0))
        shells.append(in_shells)
    dynamic = energy > _STRONG**4 * np.max(energy)
    multiplier = np.where(dynamic, cross / np.where(dynamic, energy, 1.0), 0.0).astype(np.complex64)
    worst = max(_forecast_error(multiplier, trajectory, summarise, weight) for trajectory in trajectories)
    level = np.stack(levels)
    ratio = level - level[:, :1]
    half = level.shape[1] // 2
    rates = (level[:, -1] - level[:, half]) / max(1, level.shape[1] - 1 - half)
    stacked = np.concatenate(shells)
    mean, spread = stacked.mean(axis=0), np.maximum(stacked.std(axis=0), 0.1)
    distance = np.sqrt((((stacked - mean) / spread) ** 2).mean(axis=1))
    number = lambda x: jnp.asarray(x, jnp.float32)
    return Reference(
        multiplier=jnp.asarray(multiplier),
        coherent=jnp.asarray(bool(worst < _COHERENT)),
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


def _forecast_error(multiplier: np.ndarray, trajectory: np.ndarray, summarise, weight: np.ndarray) -> float:
    """|v_T - multiplier^T v_0| / |v_T| over one trajectory."""
    last = len(trajectory) - 1
    v = np.asarray(summarise(jnp.asarray(trajectory[[0, last]], jnp.float32))[0])
    forecast = v[0] * np.asarray(_power(jnp.asarray(multiplier), last))
    norm = lambda x: float(np.sqrt(np.sum(weight * np.abs(x) ** 2)))
    return norm(v[1] - forecast) / max(norm(v[1]), 1e-30)


class Monitor:
    """Watches states as they come, and remembers when each fault began.

        monitor = Monitor(reference, u0)
        for t in range(steps):
            u = step(u)
            monitor.update(u)
            if monitor.stopped: break

    States are `(channels, *points)` or `(batch, channels, *points)`.
    """

    def __init__(
        self, reference: Reference, u0: Float[Array | np.ndarray, "*state"], *, stop_on: Iterable[str] = ()
    ):
        """**Arguments:**

        - `reference`: `reference_statistics` of the training data.
        - `u0`: the initial state or states.
        - `stop_on`: faults of `FAULTS` upon which `stopped` becomes true; by default none does.
        """
        self.stop_on = tuple(stop_on)
        if unknown := set(self.stop_on) - set(FAULTS):
            raise ValueError(f"stop_on has {sorted(unknown)}, but the faults are {FAULTS}.")
        self.reference = reference
        self._start = to_modes(self._batch(u0), reference.points)
        self.step = 0
        self.first = {fault: np.full(len(self._start), -1) for fault in FAULTS}
        self.stopped = False
        self.signals: Signals | None = None

    def update(self, u: Float[Array | np.ndarray, "*state"]) -> list[str]:
        """Take the next state; returns the faults that began with it, in any trajectory."""
        self.step += 1
        self.signals = _observe(self.reference, self._start, jnp.asarray(self.step), self._batch(u))
        began = []
        for fault in FAULTS:
            new = np.asarray(getattr(self.signals, fault)) & (self.first[fault] < 0)
            self.first[fault] = np.where(new, self.step, self.first[fault])
            if new.any():
                began.append(fault)
        self.stopped = self.stopped or any(fault in self.stop_on for fault in began)
        return began

    def _batch(self, u) -> Array:
        u = jnp.asarray(u, jnp.float32)
        return u[None] if u.ndim == 1 + len(self.reference.points) else u


_observe = eqx.filter_jit(observe)


def watched(
    step: Step, u0: Array, num_steps: int, monitor: Monitor, *, chunk: int = 50
) -> Iterator[np.ndarray]:
    """The states of a rollout one by one under a monitor, ending early once it has stopped."""
    batched = jnp.ndim(u0) == 2 + len(monitor.reference.points)
    for states in stream(step, u0, num_steps, chunk=chunk, batched=batched):
        for state in states:
            monitor.update(state)
            yield state
            if monitor.stopped:
                return


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
