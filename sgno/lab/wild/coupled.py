"""Systems of two equations on a periodic interval: method of lines, split steps, implicit diffusion."""

import dataclasses
import math
from typing import ClassVar, Literal

import numpy as np

from sgno.lab.wild.periodic import Interval
from sgno.lab.wild.solvers import fft, method_of_lines
from sgno.lab.wild.task import Equation, Solution, System, term

_FINE = Interval(2 * math.pi, 256, substeps=8)
_SPLIT = Interval(2 * math.pi, 128, substeps=40)
# The step of the method of lines is chosen by its error control.
_LINES = Interval(2 * math.pi, 128, substeps=1)


@dataclasses.dataclass(frozen=True)
class ShallowWater(System):
    """`h_t = -(h u)_x`, `u_t = -u u_x - h_x + nu u_xx` about the depth 1."""

    viscosity: float = 0.05
    amplitude: float = 0.15
    modes: int = 3
    dt: float = 0.05
    box: Interval = _FINE
    channels: ClassVar = ("h", "u")

    def equation(self) -> Equation:
        return Equation(
            {
                "h": (term(-1.0, "h", "u_x"), term(-1.0, "u", "h_x")),
                "u": (term(-1.0, "u", "u_x"), term(-1.0, "h_x"), term(self.viscosity, "u_xx")),
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        box = self.box
        start = box.fields(rng, samples, 2, modes=self.modes, std=self.amplitude)
        start[:, 0] += 1

        def slope(state, step, theta):
            h, u = state[:, 0], state[:, 1]
            return np.stack([-box.derivative(h * u), -box.derivative(u**2 / 2 + h)], 1)

        symbol = np.array([[0.0], [self.viscosity]]) * box.ik**2
        return Solution(box.observe(box.advance(symbol, slope, start, dt=self.dt, steps=steps)))


@dataclasses.dataclass(frozen=True)
class ConservedShallowWater(System):
    """`h_t = -q_x`, `q_t = -(q^2/h + h^2/2)_x + nu q_xx` with the momentum `q = h u`."""

    viscosity: float = 0.05
    amplitude: float = 0.15
    modes: int = 3
    dt: float = 0.05
    box: Interval = _FINE
    channels: ClassVar = ("h", "q")

    def equation(self) -> Equation:
        flux = term(-1.0, "q", "q", "1/h[h]", outer=(1,))
        return Equation(
            {"h": (term(-1.0, "q_x"),), "q": (flux, term(-1.0, "h", "h_x"), term(self.viscosity, "q_xx"))}
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        box = self.box
        start = box.fields(rng, samples, 2, modes=self.modes, std=self.amplitude)
        start[:, 0] += 1

        def slope(state, step, theta):
            h, q = state[:, 0], state[:, 1]
            return np.stack([-box.derivative(q), -box.derivative(q**2 / h + h**2 / 2)], 1)

        symbol = np.array([[0.0], [self.viscosity]]) * box.ik**2
        return Solution(box.observe(box.advance(symbol, slope, start, dt=self.dt, steps=steps)))


@dataclasses.dataclass(frozen=True)
class FitzHughNagumo(System):
    """`u_t = D u_xx + u - u^3 - v`, `v_t = E v_xx + 0.1 (u - v)`."""

    diffusivities: tuple[float, float] = (0.05, 0.02)
    rate: float = 0.1
    modes: int = 3
    dt: float = 0.2
    box: Interval = _FINE
    channels: ClassVar = ("u", "v")

    def equation(self) -> Equation:
        D, E = self.diffusivities
        return Equation(
            {
                "u": (term(D, "u_xx"), term(1.0, "u"), term(-1.0, "u", "u", "u"), term(-1.0, "v")),
                "v": (term(E, "v_xx"), term(self.rate, "u"), term(-self.rate, "v")),
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        start = self.box.fields(rng, samples, 2, modes=self.modes)

        def slope(state, step, theta):
            u, v = state[:, 0], state[:, 1]
            return np.stack([u - u**3 - v, self.rate * (u - v)], 1)

        symbol = np.array(self.diffusivities)[:, None] * self.box.ik**2
        states = self.box.advance(symbol, slope, start, dt=self.dt, steps=steps)
        return Solution(self.box.observe(states))


@dataclasses.dataclass(frozen=True)
class Brusselator(System):
    """`u_t = D u_xx + a - (b+1) u + u^2 v`, `v_t = E v_xx + b u - u^2 v`, oscillating for `b > 1 + a^2`."""

    diffusivities: tuple[float, float] = (0.02, 0.05)
    a: float = 1.0
    b: float = 3.0
    modes: int = 4
    dt: float = 0.1
    box: Interval = _FINE
    channels: ClassVar = ("u", "v")

    def equation(self) -> Equation:
        D, E = self.diffusivities
        product = ("u", "u", "v")
        return Equation(
            {
                "u": (term(D, "u_xx"), term(self.a), term(-self.b - 1, "u"), term(1.0, *product)),
                "v": (term(E, "v_xx"), term(self.b, "u"), term(-1.0, *product)),
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        start = self.box.fields(rng, samples, 2, modes=self.modes, std=0.3)
        start += np.array([[self.a], [self.b / self.a]])

        def slope(state, step, theta):
            u, v = state[:, 0], state[:, 1]
            return np.stack([self.a - (self.b + 1) * u + u**2 * v, self.b * u - u**2 * v], 1)

        symbol = np.array(self.diffusivities)[:, None] * self.box.ik**2
        states = self.box.advance(symbol, slope, start, dt=self.dt, steps=steps)
        return Solution(self.box.observe(states))


@dataclasses.dataclass(frozen=True)
class Schroedinger(System):
    """`i psi_t = -psi_xx/2 - |psi|^2 psi`, psi = u + i v, by split steps of order four (Yoshida)."""

    amplitude: float = 1.2
    modes: int = 4
    dt: float = 0.05
    box: Interval = _SPLIT
    channels: ClassVar = ("u", "v")

    def equation(self) -> Equation:
        def terms(own: str, other: str, sign: float):
            cubes = (term(sign, own, own, other), term(sign, other, other, other))
            return term(sign / 2, f"{other}_xx"), *cubes

        return Equation({"u": terms("u", "v", -1.0), "v": terms("v", "u", 1.0)})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        start = self.box.fields(rng, samples, 2, modes=self.modes, std=self.amplitude / math.sqrt(2))
        psi = self.advance(start[:, 0] + 1j * start[:, 1], steps)
        return Solution(self.box.observe(np.stack([np.real(psi), np.imag(psi)], 2)))

    def advance(self, psi: np.ndarray, steps: int) -> np.ndarray:
        """From given psi `(samples, fine_points)` to `(samples, steps + 1, fine_points)`."""
        box = self.box
        k = 2 * np.pi / box.length * np.fft.fftfreq(box.fine_points, 1 / box.fine_points)
        h = self.dt / box.substeps
        outer = 1 / (2 - 2 ** (1 / 3))
        states = [psi]
        for _ in range(steps):
            for _ in range(box.substeps):
                for part in (outer, 1 - 2 * outer, outer):
                    half = np.exp(-0.25j * part * h * k**2)
                    psi = fft.ifft(half * fft.fft(psi))
                    psi = psi * np.exp(1j * part * h * np.abs(psi) ** 2)
                    psi = fft.ifft(half * fft.fft(psi))
            states.append(psi)
        return np.stack(states, 1)


@dataclasses.dataclass(frozen=True)
class Wave(System):
    """`u_tt = u_xx - F(u)` as `u_t = v`, `v_t = u_xx - F(u)`: the wave equation, or sine-Gordon.

    With `hidden` only u is observed.
    """

    force: Literal["none", "sine"] = "none"
    hidden: bool = False
    amplitudes: tuple[float, float] = (1.0, 1.0)
    modes: int = 3
    dt: float = 0.1
    box: Interval = _LINES

    @property
    def channels(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("u",) if self.hidden else ("u", "v")

    def equation(self) -> Equation:
        force = (term(-1.0, "sin[u]"),) if self.force == "sine" else ()
        return Equation({"u": (term(1.0, "v"),), "v": (term(1.0, "u_xx"), *force)})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        std = np.array(self.amplitudes)[:, None]
        start = self.box.fields(rng, samples, 2, modes=self.modes, std=std)
        states = self.box.observe(self.advance(start, steps))
        return Solution(states[:, :, :1] if self.hidden else states)

    def advance(self, start: np.ndarray, steps: int) -> np.ndarray:
        """From given (u, v) on the fine grid."""

        def rhs(t, state):
            u, v = state[:, 0], state[:, 1]
            force = np.sin(u) if self.force == "sine" else 0.0
            return np.stack([v, self.box.derivative(u, 2) - force], 1)

        return np.moveaxis(method_of_lines(rhs, start, dt=self.dt, steps=steps), 0, 1)
