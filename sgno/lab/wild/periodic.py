"""Scalar equations on a periodic interval, solved on a finer grid than the one the data are on."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from sgno.errors import InputError
from sgno.lab.wild.solvers import Diagonal, fft, imex, method_of_lines, random_fields
from sgno.lab.wild.task import Equation, Solution, System, term

Slope = Callable[[np.ndarray, int, float], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A periodic interval: pseudo-spectral on `fine_points`, observed on `points`.

    Observed is every n-th point, or with `filtered` the modes that the coarse grid resolves. Products are
    taken on the fine grid and truncated to two thirds of its modes, which removes the aliases of squares.
    """

    length: float
    fine_points: int
    substeps: int
    points: int = 64
    filtered: bool = False

    @property
    def x(self) -> np.ndarray:
        """The fine grid."""
        return self.length / self.fine_points * np.arange(self.fine_points)

    @functools.cached_property
    def ik(self) -> np.ndarray:
        """i k of the modes of the real transform."""
        return 2j * np.pi / self.length * np.arange(self.fine_points // 2 + 1)

    @functools.cached_property
    def kept(self) -> np.ndarray:
        """The modes that are kept."""
        return np.arange(self.fine_points // 2 + 1) < self.fine_points / 3

    def spectrum(self, u: np.ndarray) -> np.ndarray:
        return fft.rfft(u) * self.kept

    def derivative(self, u: np.ndarray, order: int = 1) -> np.ndarray:
        return fft.irfft(self.ik**order * self.spectrum(u), self.fine_points)

    def fields(
        self, rng: np.random.Generator, samples: int, channels: int = 1, **settings: Any
    ) -> np.ndarray:
        """Random smooth fields `(samples, channels, fine_points)`."""
        return random_fields(rng, (samples, channels), (self.fine_points,), **settings)

    def advance(self, symbol: Any, slope: Slope, u0: np.ndarray, *, dt: Any, steps: int) -> np.ndarray:
        """`u_t = symbol u + slope(u, step, theta)` on the fine grid; `slope` takes and returns states.

        **Returns:** `(samples, steps + 1, channels, fine_points)`.
        """
        back = lambda v: fft.irfft(v, self.fine_points)
        nonlinear = lambda v, step, theta: self.spectrum(slope(back(v), step, theta))
        v0 = self.spectrum(u0)
        v = imex(Diagonal(symbol), nonlinear, v0, dt=dt, steps=steps, substeps=self.substeps)
        return np.moveaxis(back(v), 0, 1)

    def observe(self, states: np.ndarray) -> np.ndarray:
        """States as they are seen, on `points`."""
        if not self.filtered:
            return states[..., :: self.fine_points // self.points]
        modes = fft.rfft(states)[..., : self.points // 2 + 1] * (self.points / self.fine_points)
        modes[..., -1] = 0
        return fft.irfft(modes, self.points)


@dataclasses.dataclass(frozen=True)
class Burgers(System):
    """`u_t = -u u_x + nu u_xx + force`.

    **Arguments:**

    - `viscosities`: if given, each trajectory has its own nu, drawn from this range and given as an input.
    - `force`: `"c"`, a uniform force that is constant during each step, or `"f"`, a field of space and time.
      Both are inputs.
    - `dts`: if given, each trajectory has one of these time steps instead of `dt`.
    """

    viscosity: float = 0.1
    viscosities: tuple[float, float] | None = None
    force: Literal["c", "f"] | None = None
    amplitude: float = 1.0
    modes: int = 3
    dt: float = 0.05
    dts: tuple[float, ...] | None = None
    box: Interval = Interval(2 * math.pi, 256, substeps=8)
    holds: ClassVar[Mapping[str, str]] = {"c": "constant", "f": "linear"}

    def equation(self) -> Equation:
        diffusion = term(1.0, "nu", "u_xx") if self.viscosities else term(self.viscosity, "u_xx")
        force = (term(1.0, self.force),) if self.force else ()
        return Equation({"u": (term(-1.0, "u", "u_x"), diffusion, *force)})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        box = self.box
        u0 = box.fields(rng, samples, modes=self.modes, std=self.amplitude)
        inputs, nu, dt = {}, np.array(self.viscosity), np.array(self.dt)
        if self.viscosities is not None:
            low, high = np.log(self.viscosities)
            nu = inputs["nu"] = np.exp(rng.uniform(low, high, samples))
        if self.dts is not None:
            dt = rng.choice(self.dts, samples)
        force = lambda step, theta: 0.0
        if self.force == "c":
            c = inputs["c"] = rng.standard_normal((samples, steps + 1))
            force = lambda step, theta: c[:, step, None, None]
        elif self.force == "f":
            f = self._moving_waves(rng, samples, steps)
            inputs["f"] = box.observe(f)
            force = lambda step, theta: ((1 - theta) * f[:, step] + theta * f[:, step + 1])[:, None]
        slope = lambda u, step, theta: -box.derivative(u**2) / 2 + force(step, theta)
        per_sample = lambda values: values.reshape(-1, 1, 1) if values.ndim else values
        symbol = per_sample(nu) * box.ik**2
        states = box.advance(symbol, slope, u0, dt=per_sample(dt), steps=steps)
        return Solution(box.observe(states), inputs, dt if dt.ndim else None)

    def _moving_waves(self, rng: np.random.Generator, samples: int, steps: int) -> np.ndarray:
        """`(samples, steps + 1, fine_points)`: two random fields that beat against each other."""
        fields = self.box.fields(rng, samples, 2, modes=2, std=0.5)
        phase = rng.uniform(0, 2 * np.pi, (samples, 1)) + 2.0 * self.dt * np.arange(steps + 1)
        weights = np.stack([np.cos(phase), np.sin(phase)], -1)
        return np.einsum("stc,scn->stn", weights, fields)


@dataclasses.dataclass(frozen=True)
class KortewegDeVries(System):
    """`u_t = -6 u u_x - u_xxx`."""

    amplitude: float = 0.5
    modes: int = 3
    dt: float = 0.05
    box: Interval = Interval(20.0, 128, substeps=32)

    def equation(self) -> Equation:
        return Equation({"u": (term(-6.0, "u", "u_x"), term(-1.0, "u_xxx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes, std=self.amplitude)
        return Solution(self.box.observe(self.advance(u0, steps)))

    def advance(self, u0: np.ndarray, steps: int) -> np.ndarray:
        """From given states on the fine grid."""
        slope = lambda u, step, theta: -3 * self.box.derivative(u**2)
        return self.box.advance(-(self.box.ik**3), slope, u0, dt=self.dt, steps=steps)


@dataclasses.dataclass(frozen=True)
class KuramotoSivashinsky(System):
    """`u_t = -u u_x - u_xx - u_xxxx`, after a transient of `warm_up`."""

    amplitude: float = 1.0
    modes: int = 4
    warm_up: float = 50.0
    dt: float = 0.2
    box: Interval = Interval(40.0, 128, substeps=16)

    def equation(self) -> Equation:
        return Equation({"u": (term(-1.0, "u", "u_x"), term(-1.0, "u_xx"), term(-1.0, "u_xxxx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes, std=self.amplitude)
        # Any trajectory on the attractor will do, so the transient is solved with fewer substeps.
        fast = dataclasses.replace(self, box=dataclasses.replace(self.box, substeps=4))
        u0 = fast.advance(u0, round(self.warm_up / self.dt))[:, -1]
        return Solution(self.box.observe(self.advance(u0, steps)))

    def advance(self, u0: np.ndarray, steps: int) -> np.ndarray:
        """From given states on the fine grid."""
        slope = lambda u, step, theta: -self.box.derivative(u**2) / 2
        symbol = -(self.box.ik**2) - self.box.ik**4
        return self.box.advance(symbol, slope, u0, dt=self.dt, steps=steps)


@dataclasses.dataclass(frozen=True)
class VaryingAdvection(System):
    """`u_t = -a(x) u_x` with a positive field a: the same for all (`"fixed"`) or one for each trajectory.

    It is an input if `given`.
    """

    field: Literal["fixed", "random"] = "fixed"
    given: bool = False
    contrast: float = 0.25
    modes: int = 2
    dt: float = 0.2
    box: Interval = Interval(2 * math.pi, 128, substeps=24)

    def equation(self) -> Equation:
        return Equation({"u": (term(-1.0, "a", "u_x"),)}, fields=() if self.given else ("a",))

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes)
        a = np.exp(_field(self.box, self.field, rng, samples, self.contrast))
        slope = lambda u, step, theta: -a * self.box.derivative(u)
        states = self.box.advance(0.0, slope, u0, dt=self.dt, steps=steps)
        return Solution(self.box.observe(states), {"a": self.box.observe(_shown(a))} if self.given else {})


@dataclasses.dataclass(frozen=True)
class VaryingDiffusion(System):
    """`u_t = (D(x) u_x)_x`, D the same positive field for all trajectories and not given."""

    diffusivity: float = 0.1
    contrast: float = 0.5
    modes: int = 5
    dt: float = 0.05
    box: Interval = Interval(2 * math.pi, 128, substeps=1)

    def equation(self) -> Equation:
        return Equation({"u": (term(1.0, "D", "u_x", outer=(1,)),)}, fields=("D",))

    def diffusivities(self) -> np.ndarray:
        """D on the fine grid."""
        unused = np.random.default_rng(0)
        return self.diffusivity * np.exp(_field(self.box, "fixed", unused, 1, self.contrast)[0, 0])

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        box, D = self.box, self.diffusivities()
        u0 = box.fields(rng, samples, modes=self.modes) + rng.standard_normal((samples, 1, 1))
        rhs = lambda t, u: box.derivative(D * box.derivative(u))
        states = np.moveaxis(method_of_lines(rhs, u0, dt=self.dt, steps=steps), 0, 1)
        return Solution(box.observe(states))


def _field(
    box: Interval, kind: Literal["fixed", "random"], rng: np.random.Generator, samples: int, contrast: float
) -> np.ndarray:
    """`(samples or 1, 1, fine_points)` of standard deviation `contrast`; the fixed one has its own seed."""
    if kind == "fixed":
        return box.fields(np.random.default_rng(5), 1, modes=2, std=contrast)
    return box.fields(rng, samples, modes=2, std=contrast)


def _shown(field: np.ndarray) -> np.ndarray:
    """A field as an input: `(points)` if all trajectories share it, else `(samples, points)`."""
    return field[0, 0] if len(field) == 1 else field[:, 0]


@dataclasses.dataclass(frozen=True)
class Reaction(System):
    """`u_t = D u_xx + R(u)` with a reaction that is no polynomial.

    `"saturated"`: `R = 2 u/(1+u) - u/2` from positive states. `"exponential"`: `R = exp(-u) - u/2`.
    """

    reaction: Literal["saturated", "exponential"]
    diffusivity: float = 0.05
    modes: int = 4
    dt: float = 0.05
    box: Interval = Interval(2 * math.pi, 256, substeps=4)

    def equation(self) -> Equation:
        gain = term(2.0, "u/(1+u)[u]") if self.reaction == "saturated" else term(1.0, "exp(-u)[u]")
        return Equation({"u": (term(self.diffusivity, "u_xx"), gain, term(-0.5, "u"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes)
        if self.reaction == "saturated":
            u0 = 0.3 * np.exp(u0)
            rate = lambda u: 2 * u / (1 + u) - u / 2
        elif self.reaction == "exponential":
            rate = lambda u: np.exp(-u) - u / 2
        else:
            raise InputError(f"There is no reaction '{self.reaction}'. Use saturated or exponential.")
        slope = lambda u, step, theta: rate(u)
        symbol = self.diffusivity * self.box.ik**2
        return Solution(self.box.observe(self.box.advance(symbol, slope, u0, dt=self.dt, steps=steps)))
