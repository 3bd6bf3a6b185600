"""Scalar equations on a periodic interval, solved on a finer grid than the one the data are on."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sgno.lab.wild.solvers import Diagonal, imex, random_fields
from sgno.lab.wild.task import Equation, Solution, System, term


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """Derivatives and products by their Fourier series; squares are free of aliasing."""

    points: int
    length: float

    @property
    def ik(self) -> np.ndarray:
        """i k of the modes of the real transform."""
        return 2j * np.pi / self.length * np.arange(self.points // 2 + 1)

    @property
    def kept(self) -> np.ndarray:
        """Modes of the 2/3 rule."""
        return np.arange(self.points // 2 + 1) < self.points / 3

    def to(self, u: np.ndarray) -> np.ndarray:
        return np.fft.rfft(u) * self.kept

    def back(self, v: np.ndarray) -> np.ndarray:
        return np.fft.irfft(v, self.points)

    def derivative(self, u: np.ndarray, order: int = 1) -> np.ndarray:
        return self.back(self.ik**order * self.to(u))


def sample(states: np.ndarray, points: int, *, filtered: bool = False) -> np.ndarray:
    """States on a coarser grid: every n-th point, or filtered sharply to the modes that the grid resolves."""
    fine = states.shape[-1]
    if not filtered:
        return states[..., :: fine // points]
    spectrum = np.fft.rfft(states)[..., : points // 2 + 1] * (points / fine)
    spectrum[..., -1] = 0
    return np.fft.irfft(spectrum, points)


def solve_spectral(
    spectrum: Spectrum,
    symbol: np.ndarray,
    nonlinear: Callable[[np.ndarray, int, float], np.ndarray],
    u0: np.ndarray,
    *,
    dt: Any,
    steps: int,
    substeps: int,
) -> np.ndarray:
    """`u_t = symbol u + nonlinear(u, step, theta)`, where `nonlinear` takes states and returns spectra.

    **Returns:** `(samples, steps + 1, channels, points)`.
    """
    slope = lambda v, step, theta: nonlinear(spectrum.back(v), step, theta) * spectrum.kept
    v = imex(Diagonal(symbol), slope, spectrum.to(u0), dt=dt, steps=steps, substeps=substeps)
    return np.moveaxis(spectrum.back(v), 0, 1)


@dataclasses.dataclass(frozen=True)
class Burgers(System):
    """`u_t = -u u_x + nu u_xx`."""

    viscosity: float = 0.1
    amplitude: float = 1.0
    modes: int = 3
    dt: float = 0.05
    points: int = 64
    fine_points: int = 256
    filtered: bool = False
    substeps: int = 8
    length: tuple[float, ...] = (2 * math.pi,)

    def equation(self) -> Equation:
        return Equation({"u": (term(-1.0, "u", "u_x"), term(self.viscosity, "u_xx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        spectrum = Spectrum(self.fine_points, self.length[0])
        u0 = random_fields(rng, (samples, 1), (self.fine_points,), modes=self.modes, std=self.amplitude)
        advection = lambda u, step, theta: -spectrum.ik / 2 * np.fft.rfft(u**2)
        states = solve_spectral(
            spectrum,
            self.viscosity * spectrum.ik**2,
            advection,
            u0,
            dt=self.dt,
            steps=steps,
            substeps=self.substeps,
        )
        return Solution(sample(states, self.points, filtered=self.filtered))


@dataclasses.dataclass(frozen=True)
class KortewegDeVries(System):
    """`u_t = -6 u u_x - u_xxx`."""

    amplitude: float = 0.5
    modes: int = 3
    dt: float = 0.05
    points: int = 64
    fine_points: int = 128
    substeps: int = 32
    length: tuple[float, ...] = (20.0,)

    def equation(self) -> Equation:
        return Equation({"u": (term(-6.0, "u", "u_x"), term(-1.0, "u_xxx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = random_fields(rng, (samples, 1), (self.fine_points,), modes=self.modes, std=self.amplitude)
        return Solution(sample(self.advance(u0, steps), self.points))

    def advance(self, u0: np.ndarray, steps: int) -> np.ndarray:
        """From given states on the fine grid, `(samples, 1, fine_points)`."""
        spectrum = Spectrum(self.fine_points, self.length[0])
        advection = lambda u, step, theta: -3 * spectrum.ik * np.fft.rfft(u**2)
        dispersion = -(spectrum.ik**3)
        return solve_spectral(
            spectrum, dispersion, advection, u0, dt=self.dt, steps=steps, substeps=self.substeps
        )


@dataclasses.dataclass(frozen=True)
class KuramotoSivashinsky(System):
    """`u_t = -u u_x - u_xx - u_xxxx`, after a transient of `warm_up`."""

    amplitude: float = 1.0
    modes: int = 4
    warm_up: float = 50.0
    dt: float = 0.2
    points: int = 64
    fine_points: int = 128
    filtered: bool = False
    substeps: int = 16
    length: tuple[float, ...] = (40.0,)

    def equation(self) -> Equation:
        return Equation({"u": (term(-1.0, "u", "u_x"), term(-1.0, "u_xx"), term(-1.0, "u_xxxx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = random_fields(rng, (samples, 1), (self.fine_points,), modes=self.modes, std=self.amplitude)
        skipped = round(self.warm_up / self.dt)
        states = self.advance(u0, skipped + steps)[:, skipped:]
        return Solution(sample(states, self.points, filtered=self.filtered))

    def advance(self, u0: np.ndarray, steps: int) -> np.ndarray:
        spectrum = Spectrum(self.fine_points, self.length[0])
        advection = lambda u, step, theta: -spectrum.ik / 2 * np.fft.rfft(u**2)
        symbol = -(spectrum.ik**2) - spectrum.ik**4
        return solve_spectral(
            spectrum, symbol, advection, u0, dt=self.dt, steps=steps, substeps=self.substeps
        )
