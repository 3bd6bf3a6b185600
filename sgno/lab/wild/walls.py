"""Equations between walls, solved by Chebyshev collocation and observed on a uniform grid."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np

from sgno.lab.wild.solvers import Dense, imex
from sgno.lab.wild.task import Equation, Solution, System, term


@dataclasses.dataclass(frozen=True)
class Walled:
    """An interval between two walls: `order + 1` Chebyshev points, observed on `points` uniform ones.

    `condition` is "dirichlet" with the values `values` at the walls, or "neumann" (no flux). The unknowns are
    the values inside; those at the walls follow from them by the condition.
    """

    length: float
    order: int
    substeps: int
    condition: Literal["dirichlet", "neumann"]
    values: tuple[float, float] = (0.0, 0.0)
    nodes: Literal["cells", "walls"] = "walls"
    points: int = 64

    @property
    def x(self) -> np.ndarray:
        """The collocation points from 0 to `length`."""
        return self.length / 2 * (1 - np.cos(np.pi * np.arange(self.order + 1) / self.order))

    @property
    def observed(self) -> np.ndarray:
        """The uniform points: cell centres, or from wall to wall."""
        if self.nodes == "walls":
            return np.linspace(0, self.length, self.points)
        return self.length / self.points * (np.arange(self.points) + 0.5)

    def derivative(self) -> np.ndarray:
        """The matrix of d/dx on the collocation points (Trefethen, Spectral Methods in MATLAB, chapter 6)."""
        x = self.x
        c = np.where(np.isin(np.arange(len(x)), (0, self.order)), 2.0, 1.0) * (-1.0) ** np.arange(len(x))
        matrix = np.outer(c, 1 / c) / (x[:, None] - x[None, :] + np.eye(len(x)))
        return matrix - np.diag(matrix.sum(axis=1))

    def interpolation(self) -> np.ndarray:
        """The matrix from collocation points to the observed ones, by the barycentric formula."""
        weights = (-1.0) ** np.arange(self.order + 1)
        weights[[0, -1]] /= 2
        distance = self.observed[:, None] - self.x
        hit = np.isclose(distance, 0, atol=1e-13)
        kernel = weights / np.where(hit, 1.0, distance)
        matrix = kernel / kernel.sum(axis=1, keepdims=True)
        return np.where(hit.any(axis=1, keepdims=True), hit.astype(float), matrix)

    def extension(self) -> tuple[np.ndarray, np.ndarray]:
        """`E, e` with `u = E w + e`: all values from those inside."""
        E, e = np.eye(self.order + 1)[:, 1:-1], np.zeros(self.order + 1)
        if self.condition == "dirichlet":
            e[[0, -1]] = self.values
        else:
            rows = self.derivative()[[0, -1]]
            E[[0, -1]] = -np.linalg.solve(rows[:, [0, -1]], rows[:, 1:-1])
        return E, e

    def advance(
        self, diffusivity: float, slope: Callable[[np.ndarray], np.ndarray], u0: np.ndarray, **times: Any
    ) -> np.ndarray:
        """`u_t = diffusivity u_xx + slope(u)` from states on the collocation points.

        **Returns:** `(samples, steps + 1, channels, points)` as observed.
        """
        second = diffusivity * self.derivative() @ self.derivative()
        E, e = self.extension()
        inside = slice(1, -1)
        constant = (second @ e)[inside]
        nonlinear = lambda w, step, theta: slope(w @ E.T + e)[..., inside] + constant
        w = imex(Dense((second @ E)[inside]), nonlinear, u0[..., inside], substeps=self.substeps, **times)
        return np.moveaxis((w @ E.T + e) @ self.interpolation().T, 0, 1)

    def fields(self, rng: np.random.Generator, samples: int, *, modes: int, std: float) -> np.ndarray:
        """Random smooth fields on the collocation points that meet the condition with zero values."""
        waves = np.sin if self.condition == "dirichlet" else np.cos
        basis = waves(np.pi / self.length * np.outer(np.arange(1, modes + 1), self.x))
        amplitudes = rng.standard_normal((samples, 1, modes))
        return std * amplitudes / np.sqrt((amplitudes**2).sum(-1, keepdims=True) / 2) @ basis


@dataclasses.dataclass(frozen=True)
class WalledBurgers(System):
    """`u_t = -u u_x + nu u_xx`, u = 0 at both walls."""

    viscosity: float = 0.1
    amplitude: float = 1.0
    modes: int = 4
    dt: float = 0.05
    box: Walled = Walled(2 * math.pi, 160, 16, "dirichlet")
    boundary: ClassVar = ("dirichlet",)
    nodes: ClassVar = "walls"

    def equation(self) -> Equation:
        return Equation({"u": (term(-1.0, "u", "u_x"), term(self.viscosity, "u_xx"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes, std=self.amplitude)
        D = self.box.derivative().T
        advection = lambda u: -u * (u @ D)
        return Solution(self.box.advance(self.viscosity, advection, u0, dt=self.dt, steps=steps))


@dataclasses.dataclass(frozen=True)
class WalledHeat(System):
    """`u_t = D u_xx`, u = 0 at one wall and 1 at the other."""

    diffusivity: float = 0.02
    modes: int = 6
    dt: float = 0.04
    box: Walled = Walled(1.0, 64, 8, "dirichlet", values=(0.0, 1.0))
    boundary: ClassVar = ("dirichlet",)
    wall_values: ClassVar = {"u": (0.0, 1.0)}
    nodes: ClassVar = "walls"

    def equation(self) -> Equation:
        return Equation({"u": (term(self.diffusivity, "u_xx"),)})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        low, high = self.box.values
        lift = low + (high - low) * self.box.x / self.box.length
        u0 = lift + self.box.fields(rng, samples, modes=self.modes, std=0.5)
        return Solution(self.box.advance(self.diffusivity, np.zeros_like, u0, dt=self.dt, steps=steps))


@dataclasses.dataclass(frozen=True)
class WalledReaction(System):
    """`u_t = D u_xx + u - u^3` without flux through the walls."""

    diffusivity: float = 0.02
    modes: int = 5
    dt: float = 0.05
    box: Walled = Walled(math.pi, 96, 8, "neumann", nodes="cells")
    boundary: ClassVar = ("neumann",)

    def equation(self) -> Equation:
        return Equation({"u": (term(self.diffusivity, "u_xx"), term(1.0, "u"), term(-1.0, "u", "u", "u"))})

    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        u0 = self.box.fields(rng, samples, modes=self.modes, std=0.7) + 0.3 * rng.standard_normal(
            (samples, 1, 1)
        )
        return Solution(self.box.advance(self.diffusivity, lambda u: u - u**3, u0, dt=self.dt, steps=steps))
