"""What SGNO-X is compared with on the wild suite, each fitted to the same training arrays.

A rival is a function from a `Problem` to a `Forecast`. Settings are chosen by closed-loop forecasts of
training trajectories that were held out, never by the test part; then the rival is fitted to all of them.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sgno.errors import InputError, require
from sgno.lab.wild.score import errors, gmean_of
from sgno.lab.wild.task import System, WildData

# From initial states (samples, channels, *points), the number of steps, dt and the inputs to the states after
# each step, (samples, steps, channels, *points). Values that are not finite are a result.
Forecast = Callable[[np.ndarray, int, "float | np.ndarray", Mapping[str, np.ndarray]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a rival may see: training trajectories, their time step and inputs, the box and its walls."""

    system: System
    train: np.ndarray
    dt: float | np.ndarray
    inputs: Mapping[str, np.ndarray]

    @staticmethod
    def of(data: WildData) -> "Problem":
        return Problem(data.task.system, data.train.astype(np.float64), data.train_dt, data.train_inputs)

    @property
    def one_dt(self) -> float:
        """The time step of all trajectories.

        **Raises:** `InputError` if they differ in it.
        """
        if np.ndim(self.dt):
            raise InputError("A model of one time step cannot be fitted to trajectories that differ in dt.")
        return float(self.dt)

    def select(self, samples: slice, times: slice) -> "Problem":
        """Some samples and times of it."""
        inputs = {}
        for name, value in self.inputs.items():
            if name in self.system.holds:
                value = value[samples, times]
            elif len(value) == len(self.train):
                value = value[samples]
            inputs[name] = value
        dt = self.dt[samples] if isinstance(self.dt, np.ndarray) else self.dt
        return dataclasses.replace(self, train=self.train[samples, times], inputs=inputs, dt=dt)

    def held_out(self) -> tuple["Problem", "Problem"]:
        """A part to fit and a part to judge by: the last fifth of the trajectories, or of the only one."""
        samples, times = self.train.shape[:2]
        if samples == 1:
            # A few more frames than a fifth, so that a forecast has some steps to go wrong.
            cut = times * 7 // 10
            everything = slice(None)
            return self.select(everything, slice(0, cut)), self.select(everything, slice(cut, times))
        cut = samples - max(1, samples // 5)
        return self.select(slice(0, cut), slice(None)), self.select(slice(cut, samples), slice(None))

    def judge(self, forecast: Forecast) -> float:
        """The geometric mean error of a forecast of all its trajectories; infinite if it blows up."""
        states = forecast(self.train[:, 0], self.train.shape[1] - 1, self.dt, self.inputs)
        score = gmean_of(errors(states, self.train[:, 1:]))
        return score if np.isfinite(score) else np.inf


def best_of(
    problem: Problem, fits: Mapping[Any, Callable[[Problem], Forecast]]
) -> tuple[Forecast, dict[str, Any]]:
    """The fit, by its settings, that forecasts the held-out trajectories best, fitted to all of them.

    **Returns:** the forecast, and what was chosen with its held-out error.
    """
    part, rest = problem.held_out()
    scores = {}
    for settings, fit in fits.items():
        with np.errstate(all="ignore"):
            scores[settings] = rest.judge(fit(part))
    best = min(scores, key=scores.__getitem__)
    chosen = {"settings": best, "held_out": scores[best], "tried": len(scores)}
    with np.errstate(all="ignore"):
        return fits[best](problem), chosen


def stepped(step: Callable[[np.ndarray, int], np.ndarray]) -> Forecast:
    """The forecast of a map from a state to the next, given the number of the step."""

    def forecast(u0, steps, dt, inputs):
        states, u = [], u0
        with np.errstate(all="ignore"):
            for number in range(steps):
                u = step(u, number)
                states.append(u)
        return np.stack(states, 1)

    return forecast


def persistence(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """Every forecast is the initial state."""
    return stepped(lambda u, number: u), {}


def linear(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """This package's Linear: one matrix for each Fourier mode."""
    import jax

    from sgno.grid import Grid
    from sgno.identify import warm_start
    from sgno.nn.linear import LinearConfig
    from sgno.step import batch

    dt = problem.one_dt
    key = jax.random.key(0)
    grid = Grid(problem.train.shape[2], problem.train.shape[3:])
    train = problem.train.astype(np.float32)
    step = warm_start(LinearConfig().build(grid, key=key), train, key=key)
    run = jax.jit(lambda u: batch(step, u))
    inner = stepped(lambda u, number: np.asarray(run(u.astype(np.float32)), np.float64))
    return _only_at(dt, inner), {}


def equation(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """SGNO-X in equation form, this package's own: the PDE that `discover` finds in the data."""
    from sgno.identify import discover
    from sgno.identify.equation import simulate

    system = problem.system
    if set(system.boundary) != {"periodic"}:
        raise InputError("The equation is searched on periodic boxes, and this row has walls.")
    holds = [name for name, how in system.holds.items() if how == "constant"]
    found = discover(
        problem.train,
        dt=problem.dt,
        length=system.length,
        inputs=_with_frames_or_without(problem.inputs, len(problem.train)),
        holds=holds,
        channels=system.channels,
    )

    def forecast(u0, steps, dt, inputs):
        given = _with_frames_or_without(inputs, len(u0))
        return simulate(found.forecast, u0, steps=steps, dt=dt, inputs=given, holds=holds)[:, 1:]

    pairs = zip(found.equation.details(), found.equation.coefficients, strict=True)
    return forecast, {
        "found": found.found,
        "held_out": found.held_out,
        "equation": str(found.equation).replace("\n", "; "),
        "terms": [text for text, _ in pairs],
    }


def sgno_x(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """SGNO-X by its start alone, this package's own, as a user fits it: told of the walls and the inputs."""
    from sgno.engine import rollout
    from sgno.lab.fit import fit

    system = problem.system
    walled = set(system.boundary) != {"periodic"}
    held = [name for name, how in system.holds.items() if how == "constant" and name in problem.inputs]
    fitted = fit(
        problem.train.astype(np.float32),
        "sgno-x-start",
        dt=problem.one_dt,
        inputs=_with_frames_or_without(problem.inputs, len(problem.train)),
        holds=held,
        boundary=", ".join(f"{a}: {how}" for a, how in zip("xyz", system.boundary, strict=False))
        if walled
        else None,
        nodes=system.nodes if walled else None,
        validation=0,
        test=1,
    )

    def forecast(u0, steps, dt, inputs):
        step = fitted.step
        if inputs:
            given = _with_frames_or_without(inputs, len(u0))
            step = step.given(step.known(given, len(u0), steps + 1, u0.shape[2:]))
        return np.moveaxis(np.asarray(rollout(step, u0.astype(np.float32), steps, batched=True)), 0, 1)

    return _only_at(problem.one_dt, forecast), {"warnings": list(fitted.warnings)}


def _with_frames_or_without(inputs: Mapping[str, np.ndarray], samples: int) -> dict[str, np.ndarray]:
    """Inputs in the shapes that `discover` takes: a field that all samples share has no axis of samples."""
    return {n: a[0] if a.shape[0] == 1 and samples > 1 else a for n, a in inputs.items()}


def _only_at(dt: float, inner: Forecast) -> Forecast:
    """A forecast that refuses another time step."""

    def forecast(u0, steps, asked, inputs):
        if not np.allclose(asked, dt):
            raise InputError(f"This model runs at dt = {dt:g} only, but {np.max(asked):g} was asked.")
        return inner(u0, steps, asked, inputs)

    return forecast


def exact_dmd(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """Exact DMD by PyDMD. Its rank is chosen: all, the optimal threshold, or a share of the energy."""
    pydmd = require("pydmd", "rivals", "Exact DMD")

    def fit(rank: int | float, problem: Problem) -> Forecast:
        dt, (channels, *points) = problem.one_dt, problem.train.shape[2:]
        flat = problem.train.reshape(*problem.train.shape[:2], -1)
        before, after = (part.reshape(-1, part.shape[-1]).T for part in (flat[:, :-1], flat[:, 1:]))
        model = pydmd.DMD(svd_rank=rank, exact=True)
        model.fit(before, after)
        inverse = np.linalg.pinv(model.modes)

        def forecast(u0, steps, asked, inputs):
            if np.ndim(asked):
                raise InputError("Exact DMD runs all trajectories at one dt.")
            power = float(asked) / dt
            amplitudes = inverse @ u0.reshape(len(u0), -1).T
            number = np.arange(1, steps + 1)[:, None]
            rates = model.eigs.astype(complex) ** (power * number)
            states = np.einsum("xr,tr,rs->stx", model.modes, rates, amplitudes).real
            return states.reshape(len(u0), steps, channels, *points)

        return forecast

    ranks = (-1, 0, 0.999, 0.99999, 0.9999999)
    return best_of(problem, {rank: lambda p, rank=rank: fit(rank, p) for rank in ranks})


def operator_inference(problem: Problem) -> tuple[Forecast, dict[str, Any]]:
    """POD and quadratic operator inference by opinf; inputs enter linearly and times the state.

    Chosen are the number of POD modes, the regularisation, and whether the model is of rates (by differences
    of order four in time) or of steps. Rates are integrated by the classical Runge-Kutta method.
    """
    opinf = require("opinf", "rivals", "Operator inference")

    def fit(settings: tuple[str, int, float], problem: Problem) -> Forecast:
        kind, rank, regularizer = settings
        channels, *points = problem.train.shape[2:]
        samples, times = problem.train.shape[:2]
        flat = problem.train.reshape(samples, times, -1)
        mean = flat.mean(axis=(0, 1))
        basis = opinf.basis.PODBasis(num_vectors=rank)
        basis.fit((flat - mean).reshape(samples * times, -1).T)
        states = np.stack([basis.compress((u - mean).T) for u in flat])
        scale = np.abs(states).max()
        states = states / scale
        drive = lambda inputs, count, steps: _as_signals(problem.system, inputs, count, steps)
        signals = drive(problem.inputs, samples, times)
        terms = "cAH" + ("" if signals is None else "B" if signals.shape[-1] > 4 else "BN")
        solver = opinf.lstsq.L2Solver(regularizer=regularizer)
        if kind == "steps":
            dt = problem.one_dt
            model = opinf.models.DiscreteModel(terms, solver=solver)
            start, target, kept = states[..., :-1], states[..., 1:], slice(0, times - 1)
        else:
            model = opinf.models.ContinuousModel(terms, solver=solver)
            rates = [
                opinf.ddt.ddt_uniform(u, float(h), order=4)
                for u, h in zip(states, np.broadcast_to(problem.dt, samples), strict=True)
            ]
            dt, start, target, kept = 0.0, states, np.stack(rates), slice(None)
        join = lambda parts: np.concatenate(list(parts), axis=-1)
        given = None if signals is None else join(s[kept].T for s in signals)
        model.fit(join(start), join(target), given)

        def forecast(u0, steps, asked, inputs):
            signals = drive(inputs, len(u0), steps + 1)
            signal = lambda n: None if signals is None else signals[:, n].T
            q = basis.compress((u0.reshape(len(u0), -1) - mean).T) / scale
            evaluate = lambda q, n: np.sum([op.apply(q, signal(n)) for op in model.operators], axis=0)
            if kind == "steps":
                advance = evaluate
            else:
                h = np.broadcast_to(asked, len(u0)) / 4
                advance = lambda q, n: _four_substeps(lambda q: evaluate(q, n), q, h)
            to_states = lambda q: (basis.decompress(q * scale).T + mean).reshape(-1, channels, *points)
            out = []
            with np.errstate(all="ignore"):
                for n in range(steps):
                    q = np.clip(advance(q, n), -1e6, 1e6)
                    out.append(np.where(np.isfinite(q).all() and np.abs(q).max() < 1e6, to_states(q), np.inf))
            return np.stack(out, 1)

        return _only_at(dt, forecast) if kind == "steps" else forecast

    largest = min(48, problem.train[0, 0].size)
    kinds = ("rates", "steps") if np.ndim(problem.dt) == 0 else ("rates",)
    ranks = sorted({min(r, largest) for r in (8, 16, 32)})
    fits = {s: lambda p, s=s: fit(s, p) for s in itertools.product(kinds, ranks, (1e-6, 1e-3, 1e-1))}
    return best_of(problem, fits)


def _four_substeps(slope: Callable[[np.ndarray], np.ndarray], q: np.ndarray, h: np.ndarray) -> np.ndarray:
    for _ in range(4):
        a = slope(q)
        b = slope(q + h / 2 * a)
        c = slope(q + h / 2 * b)
        q = q + h / 6 * (a + 2 * b + 2 * c + slope(q + h * c))
    return q


def _as_signals(
    system: System, inputs: Mapping[str, np.ndarray], samples: int, times: int
) -> np.ndarray | None:
    """Inputs as `(samples, times, numbers)`; one that changes linearly is taken at the middle of a step."""
    parts = []
    for name, value in inputs.items():
        if system.holds.get(name) is None:
            value = value.reshape(samples, 1, -1) if len(value) == samples else value.reshape(1, 1, -1)
        else:
            value = value[:, :times].reshape(samples, -1, value[0, 0].size)
        if system.holds.get(name) == "linear":
            value = (value + np.roll(value, -1, 1)) / 2
        parts.append(np.broadcast_to(value, (samples, times, value.shape[-1])))
    return np.concatenate(parts, -1).astype(np.float64) if parts else None
