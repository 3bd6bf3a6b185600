"""Time integrators of the wild suite, none of them exponential, and the random states they start from.

States are `(samples, channels, *points)` in float64; all samples advance together.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft
from scipy.integrate import solve_ivp

from sgno.errors import InputError

# Its own annotations are of its dispatcher, not of arrays.
fft: Any = scipy.fft

# ARK4(3)6L[2]SA of Kennedy and Carpenter (Appl. Numer. Math. 44, 2003): fourth order, six stages, its
# implicit part L-stable with the same diagonal entry in every stage.
_GAMMA = 1 / 4
_NODES = (0.0, 1 / 2, 83 / 250, 31 / 50, 17 / 20, 1.0)
_EXPLICIT = (
    (),
    (1 / 2,),
    (13861 / 62500, 6889 / 62500),
    (
        -116923316275 / 2393684061468,
        -2731218467317 / 15368042101831,
        9408046702089 / 11113171139209,
    ),
    (
        -451086348788 / 2902428689909,
        -2682348792572 / 7519795681897,
        12662868775082 / 11960479115383,
        3355817975965 / 11060851509271,
    ),
    (
        647845179188 / 3216320057751,
        73281519250 / 8382639484533,
        552539513391 / 3454668386233,
        3354512671639 / 8306763924573,
        4040 / 17871,
    ),
)
_IMPLICIT = (
    (),
    (1 / 4,),
    (8611 / 62500, -1743 / 31250),
    (5012029 / 34652500, -654441 / 2922500, 174375 / 388108),
    (15267082809 / 155376265600, -71443401 / 120774400, 730878875 / 902184768, 2285395 / 8070912),
    (82889 / 524892, 0.0, 15625 / 83664, 69875 / 102672, -2260 / 8211),
)
_WEIGHTS = (82889 / 524892, 0.0, 15625 / 83664, 69875 / 102672, -2260 / 8211, 1 / 4)


@dataclasses.dataclass(frozen=True, eq=False)
class Diagonal:
    """A linear part that is diagonal, as derivatives are in Fourier space.

    `apply` is `L y` and `solve` is `(1 - h L)^-1 y`; `h` may be an array that broadcasts against `y`.
    """

    symbol: np.ndarray | float

    def apply(self, y: np.ndarray) -> np.ndarray:
        return self.symbol * y

    def solve(self, y: np.ndarray, h: Any) -> np.ndarray:
        return y / (1 - h * self.symbol)


class Dense:
    """A linear part given as a matrix that acts on the last axis."""

    def __init__(self, matrix: np.ndarray):
        self.matrix = matrix
        self._inverses: dict[float, np.ndarray] = {}

    def apply(self, y: np.ndarray) -> np.ndarray:
        return y @ self.matrix.T

    def solve(self, y: np.ndarray, h: Any) -> np.ndarray:
        if h not in self._inverses:
            self._inverses[h] = np.linalg.inv(np.eye(len(self.matrix)) - h * self.matrix)
        return y @ self._inverses[h].T


def imex(
    linear: Diagonal | Dense,
    nonlinear: Callable[[np.ndarray, int, float], np.ndarray],
    y0: np.ndarray,
    *,
    dt: Any,
    steps: int,
    substeps: int,
) -> np.ndarray:
    """Integrate `y' = L y + N(y, t)` by an additive Runge-Kutta method of order four.

    **Arguments:**

    - `nonlinear`: `N(y, step, theta)`, where `theta` in [0, 1] is the place inside the step of length `dt`.
    - `dt`: between two stored states; an array that broadcasts against `y0` if samples differ in it.

    **Returns:** the states at 0, dt, ..., steps dt, `(steps + 1, *y0.shape)`.
    """
    h = dt / substeps
    states = [y0]
    y = y0
    for step in range(steps):
        for substep in range(substeps):
            slopes, carried = [], []
            for node, explicit, implicit in zip(_NODES, _EXPLICIT, _IMPLICIT, strict=True):
                stage = y
                if explicit:
                    pairs = zip(explicit, implicit, slopes, carried, strict=True)
                    stage = y + h * sum(e * n + i * c for e, i, n, c in pairs)
                    stage = linear.solve(stage, h * _GAMMA)
                slopes.append(nonlinear(stage, step, (substep + node) / substeps))
                carried.append(linear.apply(stage))
            y = y + h * sum(w * (n + c) for w, n, c in zip(_WEIGHTS, slopes, carried, strict=True))
        states.append(y)
    return np.stack(states)


def method_of_lines(
    rhs: Callable[[float, np.ndarray], np.ndarray],
    y0: np.ndarray,
    *,
    dt: float,
    steps: int,
    tolerance: float = 1e-9,
    method: str = "DOP853",
) -> np.ndarray:
    """Integrate `y' = rhs(t, y)` by scipy's `solve_ivp` with error control, all samples as one system.

    **Returns:** the states at 0, dt, ..., steps dt, `(steps + 1, *y0.shape)`.

    **Raises:** `InputError` if the integrator gives up.
    """
    times = dt * np.arange(steps + 1)
    flat = lambda t, y: rhs(t, y.reshape(y0.shape)).ravel()
    solved = solve_ivp(
        flat, (0.0, times[-1]), y0.ravel(), method=method, t_eval=times, rtol=tolerance, atol=tolerance
    )
    if not solved.success:
        raise InputError(f"The equation cannot be integrated: {solved.message} Use a smaller amplitude.")
    return solved.y.T.reshape(steps + 1, *y0.shape)


def random_fields(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    points: tuple[int, ...],
    *,
    modes: int,
    std: float | np.ndarray = 1.0,
) -> np.ndarray:
    """Smooth periodic fields `(*shape, *points)`: Gaussian amplitudes of the modes 0 < |k| <= `modes`.

    Each field has mean 0 and standard deviation `std`. The random numbers drawn do not depend on `points`, so
    a finer grid samples the same fields.
    """
    axes = len(points)
    numbers = np.stack(np.meshgrid(*[np.arange(-modes, modes + 1)] * axes, indexing="ij"), -1).reshape(
        -1, axes
    )
    radius = np.linalg.norm(numbers, axis=1)
    numbers = numbers[(radius > 0) & (radius <= modes)]
    amplitudes = rng.standard_normal((*shape, len(numbers))) + 1j * rng.standard_normal(
        (*shape, len(numbers))
    )
    spectrum = np.zeros((*shape, *points), complex)
    spectrum[(..., *(numbers.T % np.array(points)[:, None]))] = amplitudes
    last = tuple(range(-axes, 0))
    fields = np.fft.ifftn(spectrum, axes=last).real
    return fields * (std / fields.std(axis=last, keepdims=True))
