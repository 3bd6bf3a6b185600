"""The horizon of a forecast: what it claims holds for unseen trajectories, however few there were."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from own_data import fitted, invoke

import sgno
from sgno.errors import InputError
from sgno.solve.forecast_horizon import (
    ForecastHorizon,
    calibrate,
    needed_trajectories,
    range_from_json,
    range_to_json,
)


def drawn_errors(rng: np.random.Generator, trajectories: int, times: int = 200) -> np.ndarray:
    """Errors that grow at a rate of each trajectory, now and then falling back."""
    growth = rng.lognormal(-2.5, 0.7, trajectories)
    wiggle = 1 + 0.3 * rng.standard_normal((times, trajectories))
    return 1e-3 * np.exp(growth * np.arange(1, times + 1)[:, None]) * np.abs(wiggle)


def stays(errors: np.ndarray, level: float) -> np.ndarray:
    above = ~(errors <= level)
    return np.where(above.any(axis=0), above.argmax(axis=0), len(errors))


@pytest.mark.parametrize(("n", "probability"), [(9, 0.9), (19, 0.9), (45, 0.8), (6, 0.9)])
def test_unseen_trajectories_stay_below_as_often_as_claimed(n, probability):
    """The mean over calibrations is 1 - k / (n + 1), up to the ties of whole steps."""
    rng = np.random.default_rng(0)
    right, claimed = [], 0.0
    for _ in range(1500):
        found = calibrate([drawn_errors(rng, n)], probability=probability)
        right.append((stays(drawn_errors(rng, 4), 0.2) >= found.steps).mean())
        claimed = found.probability
    k = max(1, math.floor((n + 1) * (1 - probability) + 1e-9))
    expected = 1 - k / (n + 1)
    assert claimed == pytest.approx(min(probability, n / (n + 1)))
    assert expected - 0.015 < np.mean(right) < expected + 0.03


def test_the_horizon_is_an_order_statistic_and_any_level_can_be_asked():
    errors = drawn_errors(np.random.default_rng(1), 29)
    found = calibrate([errors])
    assert found.steps == np.sort(stays(errors, 0.2))[2]
    for level in (0.01, 0.05, 0.5):
        assert found.at_level(level).steps == np.sort(stays(errors, level))[2]
    assert ForecastHorizon.from_json(found.to_json()) == found


def test_forecasts_that_outlive_the_data_and_those_that_blow_up():
    good = np.full((50, 12), 1e-3)
    found = calibrate([good])
    assert found.reaches_end and found.steps == 50 and "at least 50 steps" in str(found)
    broken = good.copy()
    broken[7:, :2] = np.nan
    found = calibrate([broken])
    assert found.steps == 7 and found.bound[-1] is None
    assert math.isinf(found.expected_error(20)) and found.expected_error(5) == pytest.approx(1e-3)
    assert ForecastHorizon.from_json(found.to_json()) == found
    assert calibrate([np.full((5, 12), 0.3)]).steps == 0


def test_too_few_trajectories_claim_less_and_say_so():
    found = calibrate([np.full((50, 3), 0.1), np.full((50, 3), 0.1)])
    assert found.probability == pytest.approx(6 / 7) and found.trajectories == 6
    assert "To claim 90 % takes 9 of them" in str(found)
    assert [needed_trajectories(p) for p in (0.5, 0.8, 0.9, 0.95)] == [1, 4, 9, 19]
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="probability"):
            calibrate([np.zeros((5, 3))], probability=bad)
    with pytest.raises(InputError, match="An error of -1"):
        calibrate([np.zeros((5, 3))], level=-1.0)


def test_parts_of_several_lengths_are_cut_by_their_number_alone():
    short, long = np.full((50, 8), 0.1), np.full((200, 10), 0.1)
    assert (calibrate([short, long]).length, calibrate([short, long]).trajectories) == (200, 10)
    few = calibrate([short, long[:, :4]])
    assert (few.length, few.trajectories) == (50, 12)


def test_a_long_horizon_is_kept_in_few_numbers():
    errors = np.linspace(0, 1, 50_000)[:, None] * np.ones(20)
    found = calibrate([errors])
    assert len(found.bound) < 250 and found.at_level(0.2).steps == found.steps
    assert 0.8 < found.at_level(0.1).steps / (found.steps / 2) <= 1


def waves(rng: np.random.Generator, samples: int, amplitude: float = 1.0, first: int = 1) -> np.ndarray:
    """Some waves that travel, `(samples, 31, 1, 32)`."""
    k, x, t = first + np.arange(4), 2 * np.pi * np.arange(32) / 32, np.arange(31)
    a, p = amplitude * rng.uniform(0.5, 1, (samples, 1, 1, 4)), rng.uniform(0, 7, (samples, 1, 1, 4))
    # One point a step.
    moved = x[:, None] - x[1] * t[:, None, None]
    return (a * np.cos(k * moved + p)).sum(-1)[:, :, None].astype(np.float32)


def test_a_forecast_that_leaves_the_training_distribution_is_noticed():
    rng = np.random.default_rng(0)
    reference = sgno.reference_statistics(waves(rng, 20))
    exact = lambda u: jnp.roll(u, 1, axis=-1)
    scored = sgno.evaluate(exact, waves(rng, 10), watch=reference)
    assert scored.nrmse.max() < 1e-5
    seen = range_from_json(range_to_json(reference, [scored]), 1, until=30)

    def left(step, u0):
        return np.asarray(sgno.rollout(step, u0, 30, observe=(seen,), batched=True).memory[0][1])

    assert (left(exact, waves(rng, 20)[:, 0]) == -1).all()
    assert (left(exact, waves(rng, 5, amplitude=4)[:, 0]) == 0).all()
    assert (left(exact, waves(rng, 5, first=9)[:, 0]) == 0).all()
    growing = left(lambda u: 1.1 * u, waves(rng, 5)[:, 0])
    assert ((growing > 2) & (growing < 20)).all()
    late = range_from_json(range_to_json(reference, [scored]), 1, until=1)
    never = sgno.rollout(lambda u: 1.1 * u, waves(rng, 5)[:, 0], 30, observe=(late,), batched=True)
    assert (np.asarray(never.memory[0][1]) == -1).all()


def test_a_damaged_range_is_one_clear_line():
    with pytest.raises(InputError, match="cannot be read"):
        range_from_json({"points": [8]}, 1, until=3)


def test_a_rollout_says_how_long_to_trust_it(tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    u = waves(np.random.default_rng(2), 30)
    np.save("own.npy", u)
    np.save("strange.npy", np.concatenate([u[:2], 9 * u[:1]]))
    found = fitted("own.npy", "--model", "linear", "--validation", 5, "--test", 5)
    assert found["horizon"]["steps"] == 30 and found["horizon"]["trajectories"] == 10

    def rolled(*options):
        done = invoke("rollout", "runs", "--out", "r.npz", "--force", "--json", *options)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout.splitlines()[-1])["horizon"], done.output

    said, text = rolled("--initial", "own.npy", "--samples", 3, "--steps", 31)
    assert said["trusted_steps"] == [30, 30, 30] and "Steps from 31 on are beyond it" in text
    said, text = rolled("--initial", "strange.npy", "--steps", 31)
    assert said["left_at"] == [None, None, 0] and said["trusted_steps"] == [30, 30, 0]
    assert "1 of 3 sample(s) left the training distribution, the first at the start" in text
    said, _ = rolled("--initial", "own.npy", "--samples", 3, "--steps", 31, "--level", 1e-9)
    assert said["trusted_steps"] == [0, 0, 0]
    done = invoke("evaluate", "runs", "--data", "own.npy", "--json", "--probability", 0.8)
    assert json.loads(done.stdout.splitlines()[-1])["horizon"]["probability"] == 0.8
