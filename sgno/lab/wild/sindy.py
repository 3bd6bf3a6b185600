"""PySINDy on the wild suite: its PDE library and its weak form, and a solver for the equations it finds.

PySINDy identifies a PDE but cannot simulate one. Here the identified terms are integrated pseudo-spectrally
with the linear terms implicit, or between walls by the method of lines on odd and even extensions.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from sgno.errors import InputError, require
from sgno.lab.wild.periodic import Interval
from sgno.lab.wild.rivals import Forecast, Problem
from sgno.lab.wild.solvers import fft
from sgno.lab.wild.task import System

# Polynomial degree and order of derivatives of the libraries that are tried.
LIBRARIES = ((2, 4), (3, 2))
# Thresholds of STLSQ, as shares of the largest normalised coefficient.
THRESHOLDS = tuple(np.logspace(-4.5, -0.3, 12))
_RIDGE = 1e-8
_ENSEMBLE = 20
_BAG_ROWS = 5000


@dataclasses.dataclass(frozen=True)
class Feature:
    """A product of powers of the variables, times a derivative of one of them if there is one."""

    powers: tuple[int, ...]
    derivative: tuple[int, int] | None = None

    @staticmethod
    def parse(name: str, count: int) -> "Feature":
        """From PySINDy's name with the variables called a, b, ...: `1`, `a^2 b`, `a_11`, `a^2b_1`."""
        found = re.search(r"([a-z])_(1+)$", name)
        derivative = (ord(found[1]) - ord("a"), len(found[2])) if found else None
        powers = [0] * count
        for letter, power in re.findall(r"([a-z])(?:\^(\d+))?", name[: found.start()] if found else name):
            powers[ord(letter) - ord("a")] += int(power or 1)
        return Feature(tuple(powers), derivative)

    def text(self, names: tuple[str, ...]) -> str:
        parts = [f"{n}^{p}" if p > 1 else n for n, p in zip(names, self.powers, strict=True) if p]
        if self.derivative is not None:
            variable, order = self.derivative
            parts.append(f"{names[variable]}_{'x' * order}")
        return " ".join(parts) or "1"


@dataclasses.dataclass(frozen=True)
class Found:
    """An identified system: `coefficients[channel, feature]`."""

    system: System
    names: tuple[str, ...]
    features: tuple[Feature, ...]
    coefficients: np.ndarray

    def __str__(self) -> str:
        lines = []
        for name, row in zip(self.names, self.coefficients, strict=False):
            terms = [f"{c:+.5g} {f.text(self.names)}" for f, c in zip(self.features, row, strict=True) if c]
            lines.append(f"{name}_t = {' '.join(terms) or '0'}")
        return "; ".join(lines)

    def forecast(self) -> Forecast:
        """The rollout of the identified equation."""
        return self._periodic if self.system.boundary == ("periodic",) else self._walled

    def _active(self) -> list[tuple[Feature, np.ndarray]]:
        pairs = zip(self.features, self.coefficients.T, strict=True)
        return [(feature, column) for feature, column in pairs if column.any()]

    def _periodic(self, u0, steps, dt, inputs):
        n, channels = u0.shape[-1], u0.shape[1]
        # 3/2 of the points: products of two factors are free of aliasing.
        box = Interval(self.system.length[0], n * 3 // 2, substeps=1, points=n, filtered=True)
        fine = lambda u: fft.irfft(fft.rfft(u), box.fine_points) * (box.fine_points / n)
        explicit, symbol = [], np.zeros((channels, len(box.ik)), complex)
        for feature, column in self._active():
            explicit.append((feature, column.copy()))
            variable, order = feature.derivative or (int(np.argmax(feature.powers)), 0)
            plain = sum(feature.powers) == (0 if feature.derivative else 1)
            if plain and variable < channels:
                symbol[variable] += column[variable] * box.ik**order
                explicit[-1][1][variable] = 0
        given = _given(self.system, inputs, len(u0), fine)
        start = fine(u0)
        largest = np.array([*np.abs(start).max(axis=(0, 2)), *(np.abs(given(0, 0.0)).max(axis=(0, 2)))])
        rate = sum(
            np.abs(column).max()
            * np.prod(largest**f.powers)
            * np.abs(box.ik[box.kept]).max() ** f.derivative[1]
            for f, column in explicit
            if f.derivative and column.any()
        )
        # The explicit part of the scheme is stable up to about |h rate| = 4.
        substeps = int(np.clip(np.ceil(rate * np.max(dt) / 2), 4, 64))
        box = dataclasses.replace(box, substeps=substeps)
        derivative = lambda values, order: box.derivative(values, order)

        def slope(u, step, theta):
            return _slope(explicit, np.concatenate([u, given(step, theta)], 1), channels, derivative)

        time = np.asarray(dt).reshape(-1, 1, 1) if np.ndim(dt) else dt
        with np.errstate(all="ignore"):
            return box.observe(box.advance(symbol, slope, start, dt=time, steps=steps))[:, 1:]

    def _walled(self, u0, steps, dt, inputs):
        if inputs:
            raise InputError("Inputs between walls are not simulated. Leave them out.")
        samples, channels, n = u0.shape
        matrices, lift = _walled_derivatives(self.system, n)
        active = self._active()
        fixed = self.system.boundary == ("dirichlet",) and self.system.nodes == "walls"
        derivative = lambda values, order: (
            (values - lift) @ matrices[order].T
            + ((lift[-1] - lift[0]) / self.system.length[0] if order == 1 else 0.0)
        )
        bound = 1e3 * np.abs(u0).max()
        states = np.full((samples, steps, channels, n), np.inf)
        for sample in range(samples):
            calls = 0

            def rhs(t, y):
                nonlocal calls
                calls += 1
                if calls > 20000 or not np.abs(y).max() < bound:
                    raise OverflowError
                slope = _slope(active, y.reshape(1, channels, n), channels, derivative)
                if fixed:
                    slope[..., [0, -1]] = 0
                return slope.ravel()

            times = dt * np.arange(1, steps + 1)
            try:
                with np.errstate(all="ignore"):
                    solved = solve_ivp(
                        rhs, (0, times[-1]), u0[sample].ravel(), "LSODA", times, rtol=1e-7, atol=1e-8
                    )
            except OverflowError:
                continue
            reached = solved.y.T.reshape(-1, channels, n)
            states[sample, : len(reached)] = reached
        return states


def _slope(active, variables, channels, derivative) -> np.ndarray:
    slope = np.zeros((len(variables), channels, variables.shape[-1]))
    for feature, column in active:
        value = np.ones_like(variables[:, :1])
        for index, power in enumerate(feature.powers):
            if power:
                value = value * variables[:, index : index + 1] ** power
        if feature.derivative is not None:
            index, order = feature.derivative
            value = value * derivative(variables[:, index : index + 1], order)
        slope += column[:, None] * value
    return slope


def _given(
    system: System, inputs: Mapping[str, np.ndarray], samples: int, fine: Callable[[np.ndarray], np.ndarray]
) -> Callable[[int, float], np.ndarray]:
    """The inputs at a place in time, `(samples, inputs, points)`."""
    n = fine(np.zeros(64)).shape[-1]
    parts = [_as_field(system, name, value, samples) for name, value in inputs.items()]
    parts = [fine(part) if part.shape[-1] > 1 else part for part in parts]

    def at(step, theta):
        values = []
        for name, part in zip(inputs, parts, strict=True):
            now = part[:, min(step, part.shape[1] - 1)]
            if system.holds.get(name) == "linear":
                now = (1 - theta) * now + theta * part[:, min(step + 1, part.shape[1] - 1)]
            values.append(np.broadcast_to(now, (samples, n)))
        return np.stack(values, 1) if values else np.zeros((samples, 0, n))

    return at


def _as_field(system: System, name: str, value: np.ndarray, samples: int) -> np.ndarray:
    """An input as `(samples or 1, times or 1, points or 1)`."""
    value = value.astype(np.float64)
    if name in system.holds:
        return value.reshape(*value.shape[:2], -1)
    return value.reshape(samples, 1, -1) if len(value) == samples else value.reshape(1, 1, -1)


def _walled_derivatives(system: System, n: int) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Matrices of the derivatives of u minus a lift, by its odd or even extension, and the lift."""
    odd = system.boundary == ("dirichlet",)
    on_walls = system.nodes == "walls"
    sign = -1.0 if odd else 1.0
    u = np.eye(n)
    # Rows are unit vectors; the extension is periodic with twice the length.
    mirrored = sign * (u[:, -2:0:-1] if on_walls else u[:, ::-1])
    extended = np.concatenate([u, mirrored], 1)
    box = Interval(2 * system.length[0], extended.shape[1], substeps=1)
    matrices = {}
    for order in range(1, 5):
        spectrum = box.ik**order * fft.rfft(extended)
        if order % 2:
            spectrum[:, -1] = 0
        matrices[order] = fft.irfft(spectrum, extended.shape[1])[:, :n].T
    low, high = system.wall_values.get(system.channels[0], (0.0, 0.0))
    return matrices, np.linspace(low, high, n) if on_walls else np.zeros(n)


@dataclasses.dataclass(frozen=True)
class Design:
    """The rows of a regression: features and rates of the channels."""

    features: np.ndarray
    rates: np.ndarray
    names: list[str]

    def join(self, other: "Design") -> "Design":
        features = np.concatenate([self.features, other.features])
        return Design(features, np.concatenate([self.rates, other.rates]), self.names)


def pde(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """PySINDy's PDELibrary: derivatives at every point, plain or smoothed."""
    ps = require("pysindy", "rivals", "PySINDy")
    periodic = problem.system.boundary == ("periodic",)

    def design(degree: int, order: int, smooth: bool, problem: Problem) -> Design:
        in_time: dict[str, Any] = {"order": 4, "axis": 1}
        method, options = (ps.SpectralDerivative, {}) if periodic else (ps.FiniteDifference, {"order": 4})
        if smooth:
            window = {"window_length": 9, "polyorder": 4, "axis": 1}
            differentiate = ps.SmoothedFiniteDifference(smoother_kws=window, **in_time)
        else:
            differentiate = ps.FiniteDifference(**in_time)
        library = ps.PDELibrary(
            function_library=ps.PolynomialLibrary(degree=degree, include_bias=False),
            derivative_order=order,
            spatial_grid=_points(problem),
            include_bias=True,
            differentiation_method=method,
            diff_kwargs=options,
        )
        variables = _variables(ps, problem)
        if smooth:
            variables = [_smoothed(u) for u in variables]
        library.fit(variables)
        rates = []
        for u, h in zip(variables, np.broadcast_to(problem.dt, len(variables)), strict=True):
            rates.append(differentiate(u, float(h) * np.arange(u.shape[1])))
        return _design(library, library.transform(variables), rates, problem)

    settings = [(*library, smooth) for library in LIBRARIES for smooth in (False, True)]
    return _search(problem, {s: lambda p, s=s: design(*s, p) for s in settings})


def weak(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """PySINDy's WeakPDELibrary: integrals against test functions on random windows."""
    ps = require("pysindy", "rivals", "PySINDy")

    def design(degree: int, order: int, share: float, problem: Problem) -> Design:
        dt, times, x = problem.one_dt, problem.train.shape[1], _points(problem)
        grid = np.stack(np.meshgrid(x, dt * np.arange(times), indexing="ij"), -1)
        # PySINDy draws its windows from numpy's global generator.
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(0)  # noqa: NPY002
        try:
            library = ps.WeakPDELibrary(
                function_library=ps.PolynomialLibrary(degree=degree, include_bias=False),
                derivative_order=order,
                spatiotemporal_grid=grid,
                include_bias=True,
                K=50,
                H_xt=[share * (x[-1] - x[0]), max(share * dt * (times - 1), 2.5 * dt)],
                p=6,
            )
        finally:
            np.random.set_state(state)  # noqa: NPY002
        variables = _variables(ps, problem)
        library.fit(variables)
        rates = [library.convert_u_dot_integral(u) for u in variables]
        return _design(library, library.transform(variables), rates, problem)

    settings = [(*library, share) for library in LIBRARIES for share in (0.1, 0.2)]
    return _search(problem, {s: lambda p, s=s: design(*s, p) for s in settings})


def _points(problem: Problem) -> np.ndarray:
    system, n = problem.system, problem.train.shape[-1]
    length = system.length[0]
    return np.linspace(0, length, n) if system.nodes == "walls" else length / n * np.arange(n)


def _variables(ps: Any, problem: Problem) -> list[Any]:
    """Each trajectory as PySINDy wants it, `(points, times, channels and inputs)`."""
    if problem.train.ndim != 4:
        raise InputError("PySINDy is run in one dimension here. Choose a row in one dimension.")
    samples, times, _, n = problem.train.shape
    shape = (samples, times, n)
    parts = [problem.train[:, :, c] for c in range(problem.train.shape[2])]
    for name, value in problem.inputs.items():
        parts.append(np.broadcast_to(_as_field(problem.system, name, value, samples), shape))
    both = np.stack(parts, -1).transpose(0, 2, 1, 3)
    axes = {"ax_spatial": [0], "ax_time": 1, "ax_coord": 2}
    return [ps.utils.AxesArray(u, axes) for u in np.ascontiguousarray(both)]


def _smoothed(u: Any) -> Any:
    """Savitzky-Golay in space and time, as PySINDy's smoothed differences do along one axis."""
    from scipy.signal import savgol_filter

    for axis in (0, 1):
        if u.shape[axis] > 9:
            u[...] = savgol_filter(u, 9, 4, axis=axis)
    return u


def _design(library: Any, features: list[Any], rates: list[Any], problem: Problem) -> Design:
    count, channels = problem.train.shape[2] + len(problem.inputs), problem.train.shape[2]
    names = library.get_feature_names([chr(ord("a") + i) for i in range(count)])
    rows = lambda parts: np.concatenate([np.asarray(p).reshape(-1, p.shape[-1]) for p in parts])
    return Design(rows(features), rows(rates)[:, :channels], names)


def _sparse(design: Design, share: float, ensemble: bool = False) -> np.ndarray:
    """STLSQ on normalised columns, for each channel by itself: `(channels, features)`."""
    ps = require("pysindy", "rivals", "PySINDy")
    norms = np.linalg.norm(design.features, axis=0)
    used = norms > 1e-10 * norms.max()
    features = design.features[:, used] / norms[used]
    coefficients = np.zeros((design.rates.shape[1], len(norms)))
    # Least squares by the triangular factor has the same solutions with fewer rows; bagging needs the rows.
    Q, R = np.linalg.qr(features)
    for channel, rates in enumerate(design.rates.T):
        projected = Q.T @ rates
        largest = np.abs(np.linalg.lstsq(R, projected)[0]).max()
        optimizer = ps.STLSQ(threshold=share * largest, alpha=_RIDGE)
        if ensemble:
            rows = min(len(features), _BAG_ROWS)
            optimizer = ps.EnsembleOptimizer(optimizer, bagging=True, n_models=_ENSEMBLE, n_subset=rows)
            optimizer.fit(
                features * math.sqrt(len(features) / rows), rates[:, None] * math.sqrt(len(features) / rows)
            )
        else:
            optimizer.fit(R, projected[:, None])
        coefficients[channel, used] = optimizer.coef_[0] / norms[used]
    return coefficients


def _search(
    problem: Problem, designs: Mapping[tuple, Callable[[Problem], Design]]
) -> tuple[Forecast, dict[str, Any]]:
    """Choose library, derivatives and threshold by forecasts of held-out trajectories; then fit to all."""
    part, rest = problem.held_out()
    names = (*problem.system.channels, *problem.inputs)
    make = lambda design, coefficients: Found(
        problem.system, names, tuple(Feature.parse(n, len(names)) for n in design.names), coefficients
    )
    scores, built, seen = {}, {}, set()
    for settings, design in designs.items():
        fitted = design(part)
        built[settings] = fitted
        for share in THRESHOLDS:
            found = make(fitted, _sparse(fitted, share))
            support = (settings, (found.coefficients != 0).tobytes())
            if support not in seen:
                seen.add(support)
                scores[(*settings, share, False)] = rest.judge(found.forecast())
    best = min(scores, key=scores.__getitem__)
    bagged = make(built[best[:-2]], _sparse(built[best[:-2]], best[-2], ensemble=True))
    scores[(*best[:-1], True)] = rest.judge(bagged.forecast())
    best = min(scores, key=scores.__getitem__)
    whole = built[best[:-2]].join(designs[best[:-2]](rest))
    found = make(whole, _sparse(whole, best[-2], ensemble=best[-1]))
    chosen = {"settings": best, "held_out": scores[best], "tried": len(scores), "equation": str(found)}
    return found.forecast(), chosen
