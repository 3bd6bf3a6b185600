"""The monitor on rollouts built to have one fault each, and on true ones that have none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_store import record

from sgno.engine import rollout, stream
from sgno.errors import InputError
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import parse_run
from sgno.lab.report.tables import all_tables
from sgno.solve import Monitor, evaluate, reference_statistics
from sgno.solve.monitor import FAULTS, summary

N, STEPS, SPEED = 48, 200, 0.11
X = 2 * np.pi * np.arange(N) / N


def waves(samples, times, *, seed, speed=SPEED, decay=0.0):
    """Sums of six travelling, decaying waves: `(samples, times, 1, N)`."""
    rng = np.random.default_rng(seed)
    k = np.arange(1, 7)
    a, p = rng.uniform(0.2, 1, (samples, 6)), rng.uniform(0, 2 * np.pi, (samples, 6))
    t = np.arange(times)[:, None, None]
    each = np.exp(-decay * k * t) * np.cos(k * (X[:, None] - speed * t) + p[:, None, None])
    return np.sum(a[:, None, None] * each, axis=-1)[:, :, None].astype(np.float32)


def turbulence(samples, times, *, seed):
    """States of one spectrum whose phases no law predicts."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(2, samples, times, 1, N // 2 + 1)) * np.exp(-0.4 * np.arange(N // 2 + 1))
    return np.fft.irfft(modes[0] + 1j * modes[1], N).astype(np.float32)


@pytest.fixture(scope="module")
def travelling():
    return reference_statistics(waves(10, 51, seed=0))


def first_faults(reference, states):
    """The first step of each fault in each trajectory of `(samples, times, 1, N)`, 0 for never."""
    monitor = Monitor(reference)
    each = (jnp.arange(1, states.shape[1]), jnp.asarray(np.moveaxis(states[:, 1:], 1, 0)))
    memory = monitor.init(jnp.asarray(states[:, 0]))
    memory, _ = jax.lax.scan(lambda memory, at: monitor(memory, *at), memory, each)
    return dict(zip(FAULTS, np.asarray(memory.first), strict=True))


def signals(reference, u0, u):
    """The signals one step after `u0`."""
    monitor = Monitor(reference)
    return monitor(monitor.init(jnp.asarray(u0)), jnp.asarray(1), jnp.asarray(u, jnp.float32))[1]


@pytest.mark.parametrize("decay", [0.0, 0.004])
def test_true_rollouts_beyond_the_training_horizon_raise_no_flag(decay):
    reference = reference_statistics(waves(10, 51, seed=0, decay=decay))
    assert bool(reference.coherent)
    found = first_faults(reference, waves(5, STEPS + 1, seed=1, decay=decay))
    assert all((found[fault] == 0).all() for fault in FAULTS)


@pytest.mark.parametrize("rate", [1.01, 0.99])
def test_a_growing_or_decaying_amplitude_is_flagged_as_it_starts(travelling, rate):
    states = waves(5, STEPS + 1, seed=1) * rate ** np.arange(STEPS + 1)[:, None, None]
    found = first_faults(travelling, states.astype(np.float32))
    # |rate^t - 1| passes 0.1 at step 10 of growth and 11 of decay.
    assert (np.abs(found["amplitude"] - (10 if rate > 1 else 11)) <= 1).all()
    assert (found["phase"] == 0).all() and (found["blocking"] == 0).all()


def test_energy_at_high_wavenumbers_is_flagged_as_blocking_first(travelling):
    pile = 1e-3 * np.arange(STEPS + 1)[:, None, None] * np.cos(21 * X)
    found = first_faults(travelling, (waves(5, STEPS + 1, seed=1) + pile).astype(np.float32))
    assert (found["blocking"] > 0).all() and (found["blocking"] < 60).all()
    assert (found["amplitude"] == 0).all() and (found["phase"] == 0).all()


def test_a_wrong_speed_is_a_phase_fault_and_no_other(travelling):
    found = first_faults(travelling, waves(5, STEPS + 1, seed=1, speed=1.02 * SPEED))
    # Mode k is off by 0.0022 k t radians: between 0.3 / (6 x 0.0022) = 23 and 0.3 / 0.0022 = 136 steps.
    assert ((found["phase"] > 22) & (found["phase"] < 137)).all()
    assert (found["amplitude"] == 0).all() and (found["blocking"] == 0).all()


def test_without_predictable_phases_energy_is_held_against_training():
    reference = reference_statistics(turbulence(20, 51, seed=0))
    assert not bool(reference.coherent)
    quiet = first_faults(reference, turbulence(5, STEPS + 1, seed=1))
    assert all((quiet[fault] == 0).all() for fault in FAULTS)
    for rate in (1.03, 0.97):
        states = turbulence(5, STEPS + 1, seed=1) * rate ** np.arange(STEPS + 1)[:, None, None]
        found = first_faults(reference, states.astype(np.float32))
        assert (found["amplitude"] > 0).all() and (found["phase"] == 0).all()


def test_distance_is_about_one_at_the_edge_of_the_training_data(travelling):
    states = waves(5, 2, seed=1)
    near = signals(travelling, states[:, 0], states[:, 1])
    far = signals(travelling, states[:, 0], np.random.default_rng(0).normal(size=states[:, 1].shape))
    assert float(near.distance.max()) < 3 < float(far.distance.min())
    energy = np.mean(states[:, 1] ** 2, axis=(1, 2))
    np.testing.assert_allclose(near.energy, energy, rtol=1e-4)
    np.testing.assert_allclose(near.low + near.mid + near.high, energy, rtol=1e-4)


class Shift(eqx.Module):
    """Translate by the speed, and grow."""

    growth: jax.Array

    def __call__(self, u):
        modes = jnp.fft.rfft(u) * jnp.exp(-1j * SPEED * jnp.arange(N // 2 + 1))
        return self.growth * jnp.fft.irfft(modes, N)


def test_a_watched_rollout_stops_or_goes_on(travelling):
    u0, step = waves(1, 1, seed=1)[0, 0], Shift(jnp.asarray(1.02))
    *_, last = stream(step, u0, 50, observe=(Monitor(travelling, stop_on=["amplitude"]),))
    assert last.stopped and last.step == last.memory[0].first[0] == 5
    *_, last = stream(step, u0, 50, observe=(Monitor(travelling),))
    assert not last.stopped and last.step == 50
    with pytest.raises(InputError, match="Unknown fault 'noise'"):
        Monitor(travelling, stop_on=["noise"])
    with pytest.raises(InputError, match="the same channels and grid"):
        rollout(step, u0[:, ::2], 3, observe=(Monitor(travelling),))


def test_a_state_that_is_not_finite_has_lost_its_amplitude(travelling):
    start = waves(1, 1, seed=1)[0]
    found = signals(travelling, start, np.full((1, 1, N), np.nan))
    assert found.amplitude.all() and not found.blocking.any() and not found.phase.any()


def test_an_evaluation_and_a_rollout_watch_alike(travelling):
    reference = waves(3, 31, seed=1)
    step = Shift(jnp.asarray(1.01))
    scored = evaluate(step, reference, watch=travelling)
    assert scored.signals is not None and evaluate(step, reference).signals is None
    rolled = rollout(step, reference[:, 0], 30, observe=(Monitor(travelling),), batched=True)
    np.testing.assert_allclose(scored.signals.drift, rolled.seen[0].drift, rtol=1e-2, atol=1e-4)
    found = summary(scored.signals)
    assert found["amplitude"]["first"] == rolled.memory[0].first[0].min()
    assert found["phase"] == {"first": None, "half": None, "part": 0.0}
    assert found["amplitude"]["part"] == 1.0


def watched_record(half, first=7, **settings):
    faults = {"first": first, "half": half, "part": 0.5}
    never = {"first": None, "half": None, "part": 0.0}
    return {**record(**settings), "monitor": {"amplitude": faults, "blocking": never, "phase": never}}


def test_the_report_says_when_each_run_drifted():
    records = [watched_record(half, seed=seed) for seed, half in enumerate((20, 40, None))]
    runs = [parse_run(content, f"{i}") for i, content in enumerate(records)]
    table = next(t for t in all_tables(compare(runs)) if t.id == "drift")
    ((_, model, amplitude, blocking, phase),) = table.rows
    assert model.text == "SGNO" and amplitude.value == 40 and amplitude.notes[0] == "first at step 7"
    assert blocking.text == phase.text == "never"
    old = [parse_run(record(), "0")]
    assert not any(t.id == "drift" for t in all_tables(compare(old)))
    with pytest.raises(InputError, match="monitor"):
        parse_run({**record(), "monitor": {"amplitude": {"first": "soon"}}}, "0")
