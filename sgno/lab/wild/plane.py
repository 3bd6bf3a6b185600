"""Systems in two dimensions: finite differences, finite volumes on a staggered grid, cosine series.

The axes of a state are `(samples, channels, x, y)`; walls, where there are any, stand at both ends of y.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from sgno.lab.wild.solvers import fft, random_fields
from sgno.lab.wild.task import Equation, Solution, System, term


@dataclasses.dataclass(frozen=True)
class Plane:
    """A rectangle of `fine_points` cells, observed on every n-th one so that `points` are left."""

    length: tuple[float, float]
    fine_points: tuple[int, int]
    substeps: int
    points: tuple[int, int] = (64, 64)

    @property
    def spacing(self) -> np.ndarray:
        return np.array(self.length) / np.array(self.fine_points)

    def observe(self, states: np.ndarray) -> np.ndarray:
        x, y = (fine // seen for fine, seen in zip(self.fine_points, self.points, strict=True))
        return states[..., ::x, ::y]


def runge_kutta(
    slope: Callable[[np.ndarray], np.ndarray], y0: np.ndarray, *, dt: float, steps: int, substeps: int
) -> np.ndarray:
    """The classical explicit method of order four. **Returns:** `(samples, steps + 1, ...)`."""
    h, y, states = dt / substeps, y0, [y0]
    for _ in range(steps):
        for _ in range(substeps):
            a = slope(y)
            b = slope(y + h / 2 * a)
            c = slope(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
        states.append(y)
    return np.stack(states, 1)


@dataclasses.dataclass(frozen=True)
class GrayScott(System):
    """`u_t = D lap u - u v^2 + F (1 - u)`, `v_t = E lap v + u v^2 - (F + k) v`, five-point Laplacian."""

    diffusivities: tuple[float, float] = (2e-5, 1e-5)
    feed: float = 0.04
    kill: float = 0.06
    dt: float = 10.0
    warm_up: float = 100.0
    box: Plane = Plane((1.0, 1.0), (64, 64), substeps=5)
    channels: ClassVar = ("u", "v")
    boundary: ClassVar = ("periodic", "periodic")

    def equation(self) -> Equation:
        D, E = self.diffusivities
        both = (self.feed, self.feed + self.kill)
        product = ("u", "v", "v")
        diffuse = lambda name, value: (term(value, f"{name}_xx"), term(value, f"{name}_yy"))
        return Equation(
            {
                "u": (*diffuse("u", D), term(-1.0, *product), term(both[0]), term(-both[0], "u")),
                "v": (*diffuse("v", E), term(1.0, *product), term(-both[1], "v")),
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        bumps = random_fields(rng, (samples, 1), self.box.fine_points, modes=4)[:, 0]
        v = 0.25 / (1 + np.exp(-6 * (bumps - 0.5)))
        rates = np.array(self.diffusivities).reshape(2, 1, 1) / self.box.spacing[0] ** 2

        def slope(state):
            u, v = state[:, 0], state[:, 1]
            neighbours = sum(np.roll(state, s, axis) for s in (1, -1) for axis in (-2, -1))
            react = u * v**2
            feed = np.stack([self.feed * (1 - u) - react, react - (self.feed + self.kill) * v], 1)
            return rates * (neighbours - 4 * state) + feed

        skipped = round(self.warm_up / self.dt)
        start = np.stack([1 - 2 * v, v], 1)
        states = runge_kutta(slope, start, dt=self.dt, steps=skipped + steps, substeps=self.box.substeps)
        return Solution(self.box.observe(states[:, skipped:]))


@dataclasses.dataclass(frozen=True)
class WalledPlaneReaction(System):
    """`u_t = D lap u + u - u^3 - v`, `v_t = E lap v + 0.1 (u - v)`, periodic in x, no flux at the walls of y.

    Finite differences of order four; beyond a wall the cells mirror those before it.
    """

    diffusivities: tuple[float, float] = (0.03, 0.03)
    rate: float = 0.1
    modes: int = 4
    dt: float = 0.2
    box: Plane = Plane((2 * math.pi, math.pi), (64, 64), substeps=8)
    channels: ClassVar = ("u", "v")
    boundary: ClassVar = ("periodic", "neumann")

    def equation(self) -> Equation:
        D, E = self.diffusivities
        diffuse = lambda name, value: (term(value, f"{name}_xx"), term(value, f"{name}_yy"))
        return Equation(
            {
                "u": (*diffuse("u", D), term(1.0, "u"), term(-1.0, "u", "u", "u"), term(-1.0, "v")),
                "v": (*diffuse("v", E), term(self.rate, "u"), term(-self.rate, "v")),
            }
        )

    def laplacian(self, state: np.ndarray) -> np.ndarray:
        """Of order four on the cells."""
        hx, hy = self.box.spacing
        n, m = state.shape[-2:]
        wide = np.pad(state, [(0, 0)] * (state.ndim - 2) + [(2, 2), (0, 0)], mode="wrap")
        tall = np.pad(state, [(0, 0)] * (state.ndim - 1) + [(2, 2)], mode="symmetric")
        weights = (-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12)
        along_x = sum(w * wide[..., i : i + n, :] for i, w in enumerate(weights))
        along_y = sum(w * tall[..., i : i + m] for i, w in enumerate(weights))
        return along_x / hx**2 + along_y / hy**2

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        # Periodic fields on twice the height, made even about the walls.
        n, m = self.box.fine_points
        fields = random_fields(rng, (samples, 2), (n, 2 * m), modes=self.modes)
        start = (fields + fields[..., ::-1])[..., :m] / math.sqrt(2)
        rates = np.array(self.diffusivities).reshape(2, 1, 1)

        def slope(state):
            u, v = state[:, 0], state[:, 1]
            return rates * self.laplacian(state) + np.stack([u - u**3 - v, self.rate * (u - v)], 1)

        states = runge_kutta(slope, start, dt=self.dt, steps=steps, substeps=self.box.substeps)
        return Solution(self.box.observe(states))


@dataclasses.dataclass(frozen=True)
class Staggered:
    """Incompressible flow on a staggered grid (Harlow and Welch 1965): u on x-faces, v on y-faces.

    The face `[i, j]` is the lower one of the cell `[i, j]`. With walls v is zero on the faces at both ends
    of y (only the lower ones are stored, the first of them zero) and u does not slip. Differences are
    central, of order two; fluxes are shared by the cells on both sides, so momentum is conserved.
    """

    spacing: tuple[float, float]
    viscosity: float
    walls: bool

    def above(self, a: np.ndarray, sign: float) -> np.ndarray:
        """`a[j + 1]`; beyond an upper wall the value is mirrored with a sign."""
        shifted = np.roll(a, -1, -1)
        if self.walls:
            shifted[..., -1] = sign * a[..., -1]
        return shifted

    def below(self, a: np.ndarray, sign: float) -> np.ndarray:
        """`a[j - 1]`, mirrored with a sign at the lower wall."""
        shifted = np.roll(a, 1, -1)
        if self.walls:
            shifted[..., 0] = sign * a[..., 0]
        return shifted

    def upper_face(self, v: np.ndarray) -> np.ndarray:
        """v on the upper face of each cell."""
        upper = np.roll(v, -1, -1)
        if self.walls:
            upper[..., -1] = 0
        return upper

    def divergence(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        hx, hy = self.spacing
        return (np.roll(u, -1, -2) - u) / hx + (self.upper_face(v) - v) / hy

    def project(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest field without divergence: `u - grad p` with `div grad p = div u` on the same grid."""
        hx, hy = self.spacing
        source = fft.rfft(self.divergence(u, v), axis=-2)
        n, m = u.shape[-2:]
        kx = (2 * np.sin(np.pi * np.arange(n // 2 + 1) / n) / hx)[:, None] ** 2
        if self.walls:
            ky = (2 * np.sin(np.pi * np.arange(m) / (2 * m)) / hy) ** 2
            source = fft.dct(source.real, type=2, axis=-1) + 1j * fft.dct(source.imag, type=2, axis=-1)
        else:
            ky = (2 * np.sin(np.pi * np.arange(m) / m) / hy) ** 2
            source = fft.fft(source, axis=-1)
        laplacian = -(kx + ky)
        laplacian[0, 0] = 1
        p = source / laplacian
        p[..., 0, 0] = 0
        if self.walls:
            p = fft.idct(p.real, type=2, axis=-1) + 1j * fft.idct(p.imag, type=2, axis=-1)
        else:
            p = fft.ifft(p, axis=-1)
        p = fft.irfft(p, n, axis=-2)
        u = u - (p - np.roll(p, 1, -2)) / hx
        v = v - (p - self.below(p, 1.0)) / hy
        return u, v

    def momentum(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`-div(u u) + nu lap u` on the faces."""
        hx, hy = self.spacing
        left, right = (lambda a: np.roll(a, 1, -2)), (lambda a: np.roll(a, -1, -2))
        # At corners: u between two rows, v between two columns. A wall has no flux through it.
        u_corner, v_corner = (u + self.below(u, -1.0)) / 2, (v + left(v)) / 2
        cross = u_corner * v_corner
        uu = ((u + right(u)) / 2) ** 2
        vv = ((v + self.upper_face(v)) / 2) ** 2
        du = (uu - left(uu)) / hx + (self.upper_face(cross) - cross) / hy
        dv = (right(cross) - cross) / hx + (vv - np.roll(vv, 1, -1)) / hy
        lap_u = (right(u) - 2 * u + left(u)) / hx**2
        lap_u += (self.above(u, -1.0) - 2 * u + self.below(u, -1.0)) / hy**2
        lap_v = (right(v) - 2 * v + left(v)) / hx**2
        lap_v += (self.upper_face(v) - 2 * v + np.roll(v, 1, -1)) / hy**2
        a, b = self.viscosity * lap_u - du, self.viscosity * lap_v - dv
        if self.walls:
            b[..., 0] = 0
        return a, b

    def vorticity(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """`v_x - u_y` at the corners."""
        hx, hy = self.spacing
        return (v - np.roll(v, 1, -2)) / hx - (u - self.below(u, -1.0)) / hy


@dataclasses.dataclass(frozen=True)
class NavierStokes(System):
    """Decaying vorticity `w_t = -(u w_x + v w_y) + nu lap w` on a periodic square, by a projection method."""

    viscosity: float = 0.02
    amplitude: float = 2.0
    modes: int = 4
    dt: float = 0.1
    box: Plane = Plane((2 * math.pi, 2 * math.pi), (128, 128), substeps=4)
    channels: ClassVar = ("w",)
    boundary: ClassVar = ("periodic", "periodic")

    @property
    def flow(self) -> Staggered:
        return Staggered(tuple(self.box.spacing), self.viscosity, walls=False)

    def equation(self) -> Equation:
        # u = s_y and v = -s_x with the stream function s: -lap s = w.
        return Equation(
            {
                "w": (
                    term(-1.0, "s_y", "w_x"),
                    term(1.0, "s_x", "w_y"),
                    term(self.viscosity, "w_xx"),
                    term(self.viscosity, "w_yy"),
                )
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        flow = self.flow
        stream = random_fields(rng, (samples,), self.box.fine_points, modes=self.modes)
        hx, hy = self.box.spacing
        u, v = (np.roll(stream, -1, -1) - stream) / hy, -(np.roll(stream, -1, -2) - stream) / hx
        scale = self.amplitude / flow.vorticity(u, v).std(axis=(-2, -1), keepdims=True)

        def slope(state):
            return np.stack(flow.project(*flow.momentum(state[:, 0], state[:, 1])), 1)

        start = np.stack([scale * u, scale * v], 1)
        states = runge_kutta(slope, start, dt=self.dt, steps=steps, substeps=self.box.substeps)
        vorticity = flow.vorticity(states[:, :, 0], states[:, :, 1])
        return Solution(self.box.observe(vorticity[:, :, None]))


@dataclasses.dataclass(frozen=True)
class RayleighBenard(System):
    """Convection between a warm lower and a cold upper plate, in units of height and free fall.

    `u_t + u.grad u = -grad p + sqrt(Pr/Ra) lap u + T e_y`, `T_t + u.grad T = lap T / sqrt(Pr Ra)`,
    `div u = 0`; u = 0 and T = +-1/2 at the plates. Observed are T and the velocities in the cells.
    """

    rayleigh: float = 1e5
    prandtl: float = 1.0
    dt: float = 0.25
    warm_up: float = 30.0
    box: Plane = Plane((4.0, 1.0), (128, 32), substeps=5, points=(128, 32))
    channels: ClassVar = ("T", "u", "v")
    boundary: ClassVar = ("periodic", "dirichlet")
    wall_values: ClassVar = {"T": (0.5, -0.5)}

    def equation(self) -> Equation:
        nu, kappa = math.sqrt(self.prandtl / self.rayleigh), 1 / math.sqrt(self.prandtl * self.rayleigh)
        carried = lambda name: (term(-1.0, "u", f"{name}_x"), term(-1.0, "v", f"{name}_y"))
        spread = lambda name, value: (term(value, f"{name}_xx"), term(value, f"{name}_yy"))
        return Equation(
            {
                "T": (*carried("T"), *spread("T", kappa)),
                "u": (*carried("u"), *spread("u", nu), term(-1.0, "p_x")),
                "v": (*carried("v"), *spread("v", nu), term(-1.0, "p_y"), term(1.0, "T")),
            }
        )

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        nu, kappa = math.sqrt(self.prandtl / self.rayleigh), 1 / math.sqrt(self.prandtl * self.rayleigh)
        hx, hy = self.box.spacing
        flow = Staggered((hx, hy), nu, walls=True)
        n, m = self.box.fine_points
        y = (np.arange(m) + 0.5) * hy

        def slope(state):
            T, u, v = state[:, 0], state[:, 1], state[:, 2]
            left, right = np.roll(T, 1, -2), np.roll(T, -1, -2)
            # Ghost cells put T = 1/2 on the lower plate and T = -1/2 on the upper one.
            below, above = np.roll(T, 1, -1), np.roll(T, -1, -1)
            below[..., 0], above[..., -1] = 1 - T[..., 0], -1 - T[..., -1]
            flux_x, flux_y = u * (T + left) / 2, v * (T + below) / 2
            carried = (np.roll(flux_x, -1, -2) - flux_x) / hx + (flow.upper_face(flux_y) - flux_y) / hy
            spread = (left - 2 * T + right) / hx**2 + (below - 2 * T + above) / hy**2
            a, b = flow.momentum(u, v)
            buoyancy = (T + below) / 2
            buoyancy[..., 0] = 0
            return np.stack([kappa * spread - carried, *flow.project(a, b + buoyancy)], 1)

        start = np.zeros((samples, 3, n, m))
        bumps = random_fields(rng, (samples,), (n, 2 * m), modes=6)[..., :m]
        start[:, 0] = 0.5 - y + 0.1 * bumps * np.sin(np.pi * y)
        skipped = round(self.warm_up / self.dt)
        states = runge_kutta(slope, start, dt=self.dt, steps=skipped + steps, substeps=self.box.substeps)
        T, u, v = np.moveaxis(states[:, skipped:], 2, 0)
        seen = np.stack([T, (u + np.roll(u, -1, -2)) / 2, (v + flow.upper_face(v)) / 2], 2)
        return Solution(self.box.observe(seen))
