"""The horizon over many data sets: how often it is right for unseen trajectories, and how often a forecast is
wrongly said to have left the training distribution.

`python validation/test_horizon.py` keeps what it finds in `results/horizon.json`.
"""

from collections.abc import Callable, Iterator

import jax
import numpy as np

import sgno
from sgno.grid import Grid
from sgno.lab.wild.catalogue import get
from sgno.nn.linear import LinearConfig
from sgno.solve.forecast_horizon import TrainingRange, calibrate, range_from_json, range_to_json
from sgno.solve.metrics import stable_step

from keep import keep  # isort: skip

# Data sets of each system and number of held-out trajectories.
DATA_SETS, HELD_OUT, UNSEEN = 40, (10, 19, 40), 60
# Of one wild row: divisions of its trajectories.
DIVISIONS, ROWS = 8, ("burgers", "ks", "kdv")


def lattice(rng: np.random.Generator, off: float) -> Callable[[np.ndarray], np.ndarray]:
    """A lattice of chaotic maps; `off` is the error of its parameter."""
    f = lambda u: 1 - (1.7 + off) * u**2
    return lambda u: 0.7 * f(u) + 0.15 * (np.roll(f(u), 1, -1) + np.roll(f(u), -1, -1))


def lorenz(rng: np.random.Generator, off: float) -> Callable[[np.ndarray], np.ndarray]:
    """Lorenz's model of 1996, five Runge-Kutta steps of 0.01."""
    rate = lambda u: (np.roll(u, -1, -1) - np.roll(u, 2, -1)) * np.roll(u, 1, -1) - u + 8 + off

    def step(u):
        for _ in range(5):
            a = rate(u)
            b = rate(u + 0.005 * a)
            c = rate(u + 0.005 * b)
            u = u + 0.01 / 6 * (a + 2 * b + 2 * c + rate(u + 0.01 * c))
        return u

    return step


def waves(rng: np.random.Generator, off: float) -> Callable[[np.ndarray], np.ndarray]:
    """Advection and diffusion, by a wrong speed."""
    k = np.arange(17)
    factor = np.exp(-1j * k * 0.1 * (1 + off) - 0.002 * k**2)
    return lambda u: np.fft.irfft(np.fft.rfft(u) * factor, 32)


SYSTEMS = {"lattice": (lattice, 1e-4), "lorenz": (lorenz, 1e-3), "waves": (waves, 0.01)}


def errors_of(name: str, rng: np.random.Generator, off: float, count: int, steps: int = 150) -> np.ndarray:
    """nRMSE `(steps, count)` of the system with a wrong parameter against the right one."""
    system, _ = SYSTEMS[name]
    k = np.arange(1, 5)[:, None]
    x = 2 * np.pi * np.arange(32) / 32
    a, p = rng.normal(size=(count, 4, 1)), rng.uniform(0, 7, (count, 4, 1))
    u = np.tanh((a * np.cos(k * x + p)).sum(1)) * (8 if name == "lorenz" else 1)
    right, wrong = system(rng, 0.0), system(rng, off)
    if name != "waves":
        for _ in range(50):
            u = right(u)
    v, errors = u, []
    for _ in range(steps):
        u, v = right(u), wrong(v)
        errors.append(np.linalg.norm(v - u, axis=1) / np.linalg.norm(u, axis=1))
    return np.stack(errors)


def stays(errors: np.ndarray) -> np.ndarray:
    return np.array([stable_step(each[:, None]) for each in errors.T])


def coverage(name: str, held_out: int) -> dict[str, float]:
    """Over data sets: how often unseen trajectories stay below 20 % for the stated horizon."""
    right, steps, ends = [], [], 0
    for seed in range(DATA_SETS):
        rng = np.random.default_rng([seed, held_out])
        off = SYSTEMS[name][1] * rng.lognormal(0, 1)
        found = calibrate([errors_of(name, rng, off, held_out)])
        if found.reaches_end or found.steps == 0:
            # No statement that could be wrong by chance.
            ends += 1
            continue
        right.append((stays(errors_of(name, rng, off, UNSEEN)) >= found.steps).mean())
        steps.append(found.steps)
    return {
        "data_sets": len(right),
        "without_statement": ends,
        "right": float(np.mean(right)),
        "spread": float(np.std(right)),
        "median_steps": float(np.median(steps)),
    }


def left_at(step: sgno.Linear, u0: np.ndarray, seen: TrainingRange, steps: int) -> np.ndarray:
    """After how many steps each forecast left; one length for all, so that one program does."""
    return np.asarray(sgno.rollout(step, u0, steps, observe=(seen,), batched=True).memory[0][1])


def wild(row: str) -> Iterator[dict[str, float]]:
    """Linear on divisions of one row's trajectories: is its horizon right, how many unseen forecasts are said
    to leave the training distribution, and how many of those from five times the amplitude?"""
    data = get(row).data()
    u = np.concatenate([data.train, data.test[:, : data.train.shape[1]]])
    key = jax.random.key(0)
    for seed in range(DIVISIONS):
        train, held_out, unseen = np.split(u[np.random.default_rng(seed).permutation(len(u))], [16, 28])
        grid = Grid(u.shape[2], u.shape[3:])
        step = sgno.warm_start(LinearConfig().build(grid, key=key), train, key=key)
        reference = sgno.reference_statistics(train)
        scored = sgno.evaluate(step, held_out, watch=reference)
        found = calibrate([scored.nrmse])
        seen = range_from_json(range_to_json(reference, [scored]), u.shape[2], until=found.steps)
        left, strange = (
            left_at(step, u0, seen, len(scored.nrmse)) for u0 in (unseen[:, 0], 5 * unseen[:, 0])
        )
        yield {
            "steps": found.steps,
            "right": float((stays(sgno.evaluate(step, unseen).nrmse) >= found.steps).mean()),
            "left_wrongly": float((left >= 0).mean()),
            "strange_noticed": float((strange >= 0).mean()),
        }


def measured() -> dict:
    synthetic = {name: {str(n): coverage(name, n) for n in HELD_OUT} for name in SYSTEMS}
    stated = [each for of in synthetic.values() for each in of.values()]
    rows = {row: list(wild(row)) for row in ROWS}
    every = [each for of in rows.values() for each in of]
    return {
        "right": float(np.average([s["right"] for s in stated], weights=[s["data_sets"] for s in stated])),
        "data_sets": sum(s["data_sets"] for s in stated),
        "synthetic": synthetic,
        "wild_right": float(np.mean([each["right"] for each in every])),
        "wild_left_wrongly": float(np.mean([each["left_wrongly"] for each in every])),
        "wild_strange_noticed": float(np.mean([each["strange_noticed"] for each in every])),
        "wild": rows,
    }


def test_horizons_are_right_as_often_as_stated():
    for name in SYSTEMS:
        for n in HELD_OUT:
            found = coverage(name, n)
            assert found["data_sets"] > DATA_SETS / 2 and 0.85 < found["right"] < 0.95


if __name__ == "__main__":
    keep("horizon", measured())
