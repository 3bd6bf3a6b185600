"""Trajectories as amplitudes, with the level of their noise and the modes that stand above it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sgno.identify.equation.flow import Box, Inputs
from sgno.spectral import to_modes

# The rounding of float32 data relative to their root mean square.
_ROUNDING = 1e-7
# Below this fraction of the data, what looks like noise may be the tail of a spectrum, and initial states
# need not be estimated: chosen on Burgers and KdV at 64 points, whose tails reach 3e-4.
_NOISY = 5e-4
# A mean that moves by less than this part of the data from frame to frame moves by rounding.
_SAME_MEAN = 1e-6


@dataclass(frozen=True)
class Data:
    """Amplitudes `(samples, frames, C, *modes)` and what is known of them.

    - `dt`: the time between frames, `(samples, frames - 1)`.
    - `noise`: standard deviation of the noise at a point, `(C,)`; at least that of rounding.
    - `rms`: root mean square of each channel, `(C,)`.
    - `signal`: mean power of each mode above the noise, `(C, *modes)`.
    - `keep`: the modes whose signal can be told from noise, `(C, *modes)`.
    """

    v: np.ndarray
    dt: np.ndarray
    box: Box
    inputs: Inputs
    noise: np.ndarray
    rms: np.ndarray
    signal: np.ndarray
    keep: np.ndarray

    @staticmethod
    def make(u: np.ndarray, dt: np.ndarray, box: Box, inputs: Inputs) -> "Data":
        """**Arguments:** `u`: `(samples, frames, C, *points)`."""
        v = to_modes(u.astype(float), box.points) * box.inner()
        rms = np.maximum(np.sqrt((u.astype(float) ** 2).mean((0, 1, *range(3, u.ndim)))), 1e-30)
        noise = noise_level(v, box)
        noise = np.where(noise > _NOISY * rms, noise, _ROUNDING * rms)
        floor = box.broadcast(noise**2) / math.prod(box.points)
        signal = np.maximum((np.abs(v) ** 2).mean((0, 1)) - floor, 0)
        # The mean power of noise alone has the relative spread 1/sqrt(count).
        keep = (signal > 3 * floor / math.sqrt(v.shape[0] * v.shape[1])) & box.inner()
        # A channel's mean that never moves is a conserved quantity: no term may change it.
        means = np.abs(np.diff(v[(..., *(0,) * box.dims)], axis=1)).max((0, 1))
        conserved = bool((noise <= _NOISY * rms).all() and (means < _SAME_MEAN * rms).all())
        box = replace(box, conserves_mean=conserved)
        return Data(v, dt, box, inputs, noise, rms, signal, keep)

    def take(self, samples: Sequence[int], frames: slice = slice(None)) -> "Data":
        """Some trajectories, or some of their frames, with what was learnt from all."""
        rows = np.asarray(samples)
        first, last, _ = frames.indices(self.v.shape[1])
        dt = self.dt[rows, first : last - 1]
        return replace(self, v=self.v[rows, frames], dt=dt, inputs=self.inputs.take(rows, frames))

    @property
    def channels(self) -> int:
        return self.v.shape[2]

    @property
    def frames(self) -> int:
        return self.v.shape[1]

    @property
    def noisy(self) -> bool:
        """Whether the first state of a window has to be estimated rather than taken from the data."""
        return bool(np.any(self.noise > _NOISY * self.rms))

    @property
    def scale(self) -> np.ndarray:
        """`(C, *modes)`: by this, a difference of amplitudes counts in standard deviations of the noise."""
        return np.sqrt(self.box.multiplicity * math.prod(self.box.points)) / self.box.broadcast(self.noise)

    def clear(self) -> np.ndarray:
        """The modes whose signal is well above the noise: products of others are mostly noise."""
        return self.keep & (self.signal > 4 * self.box.broadcast(self.noise**2) / math.prod(self.box.points))

    def smoothed(self) -> np.ndarray:
        return self.v * self.keep


def noise_level(v: np.ndarray, box: Box) -> np.ndarray:
    """Standard deviation of white noise in each channel, from amplitudes `(samples, frames, C, *modes)`.

    White noise has the same power in every mode and in every time difference (over its binomial norm); a
    resolved signal does not. So the smallest powers are those of noise.
    """
    # The mean is real, so its power has another distribution.
    waves = box.inner() & (np.sum([n**2 for n in np.broadcast_arrays(*box.numbers())], axis=0) > 0)
    levels = []
    for order in range(min(5, v.shape[1] - 1)):
        difference = np.diff(v, n=order, axis=1)[..., waves]
        # The power of Gaussian noise is exponentially distributed. The median ignores rare events.
        power = np.median(np.abs(difference) ** 2, (0, 1)) / math.log(2) / math.comb(2 * order, order)
        low = np.sort(power, axis=1)[:, : max(1, power.shape[1] // 8)].mean(1, keepdims=True)
        # The powers of modes of noise alone differ little.
        levels.append(np.where(power <= 2 * low, power, np.nan))
    return np.sqrt(np.min([np.nanmean(p, axis=1) for p in levels], axis=0) * math.prod(box.points))
