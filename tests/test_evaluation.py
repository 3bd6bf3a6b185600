"""Rollout, errors, scores and spectral diagnostics against APEBench and against errors of known size."""

import sys
from typing import Any

import apebench
import equinox as eqx
import exponax
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from sgno.solve import evaluate, gmean, rollout, stable_step, stream
from sgno.solve.errors import correlation, nrmse
from sgno.solve.scores import nonfinite_steps, phase_average
from sgno.solve.spectra import bands, energy_spectrum, spectral_errors


class Multiply(eqx.Module):
    """u+ = a u."""

    a: jax.Array

    def __call__(self, u):
        return self.a * u


def test_rollout_feeds_predictions_back():
    u0 = jnp.asarray([[1.0, 2.0]])
    states = rollout(Multiply(jnp.asarray(2.0)), u0, 6, every=2)
    np.testing.assert_allclose(states[:, 0, 0], [4, 16, 64])
    batch = rollout(Multiply(jnp.asarray(2.0)), u0[None], 3, batched=True)
    np.testing.assert_allclose(batch[:, 0, 0, 1], [4, 8, 16])
    with pytest.raises(ValueError, match="every=7"):
        rollout(Multiply(jnp.asarray(2.0)), u0, 6, every=7)


def test_a_batch_in_chunks_rolls_out_like_the_whole():
    class OneAtATime(Multiply):
        def states_at_once(self, points):
            return 2 if points == (2,) else None

    u0 = jnp.arange(12.0).reshape(6, 1, 2)
    whole = rollout(Multiply(jnp.asarray(0.5)), u0, 3, batched=True)
    np.testing.assert_array_equal(rollout(OneAtATime(jnp.asarray(0.5)), u0, 3, batched=True), whole)


def test_stream_equals_rollout_piece_by_piece():
    u0 = jnp.asarray([[1.0, -2.0]])
    step = Multiply(jnp.asarray(0.9))
    pieces = list(stream(step, u0, 23, chunk=10))
    assert [len(piece) for piece in pieces] == [10, 10, 3]
    np.testing.assert_array_equal(np.concatenate(pieces), rollout(step, u0, 23))


def test_errors_agree_with_exponax():
    a, b = jax.random.normal(jax.random.PRNGKey(0), (2, 5, 1, 12, 14))
    ours = float(nrmse(a, b).mean())
    assert ours == pytest.approx(float(exponax.metrics.mean_metric(exponax.metrics.nRMSE, a, b)), rel=1e-5)
    ours = float(correlation(a, b).mean())
    assert ours == pytest.approx(
        float(exponax.metrics.mean_metric(exponax.metrics.correlation, a, b)), rel=1e-4
    )


def test_gmean_agrees_with_apebench():
    curve = np.exp(np.random.default_rng(0).normal(size=200))
    frame = pd.DataFrame({"time_step": np.arange(1, 201), "mean_nRMSE": curve, "net": "x"})
    theirs = apebench.aggregate_gmean(frame, grouping_cols=["net"])["gmean_mean_nRMSE"].item()
    assert gmean(curve) == pytest.approx(theirs, rel=1e-9)


def test_scores_of_a_real_rollout_agree_with_apebench():
    scenario = apebench.scenarios.difficulty.Advection(
        num_points=32,
        num_train_samples=1,
        train_temporal_horizon=1,
        num_test_samples=3,
        test_temporal_horizon=110,
    )
    network: Any = scenario.get_network("Conv;4;2;relu", jax.random.PRNGKey(0))
    ours = evaluate(network, np.asarray(scenario.get_test_data()))
    theirs = np.asarray(scenario.perform_test_rollout(network))
    np.testing.assert_allclose(ours.mean_nrmse, theirs, rtol=1e-4)
    frame = pd.DataFrame({"time_step": np.arange(1, 111), "mean_nRMSE": theirs, "net": "x"})
    aggregate = apebench.aggregate_gmean(frame, grouping_cols=["net"])["gmean_mean_nRMSE"].item()
    assert ours.gmean100 == pytest.approx(aggregate, rel=1e-4)


def test_evaluation_in_pieces_equals_evaluation_at_once(monkeypatch):
    reference = np.random.default_rng(0).normal(size=(2, 12, 1, 16)).astype(np.float32)
    step = Multiply(jnp.asarray(1.01))
    whole = evaluate(step, reference)
    monkeypatch.setattr(sys.modules["sgno.solve.evaluate"], "_CHUNK_NUMBERS", 100)
    pieces = evaluate(step, reference)
    np.testing.assert_allclose(whole.nrmse, pieces.nrmse, rtol=1e-6)
    np.testing.assert_allclose(whole.spectrum, pieces.spectrum, rtol=1e-5)


def test_nonfinite_steps_are_counted_and_never_dropped():
    reference = np.ones((3, 121, 1, 8), np.float32)
    scored = evaluate(Multiply(jnp.asarray(3.0)), reference)
    assert scored.nonfinite_steps > 0 and len(scored.nrmse) == 120
    assert not np.isfinite(scored.gmean100)
    assert scored.stable_step(0.2) == 0
    errors = np.ones((4, 2))
    errors[1, 0] = np.nan
    assert nonfinite_steps(errors) == 1


@pytest.mark.parametrize(
    ("curve", "steps"),
    [([0.1, 0.3, 0.1], 1), ([0.1, 0.2], 2), ([0.3], 0), ([0.1, np.nan], 1), ([0.1, np.inf], 1)],
)
def test_stable_step_ends_at_the_first_crossing(curve, steps):
    assert stable_step(np.asarray(curve), 0.2) == steps


def waves(amplitudes: dict[int, float], phase: float = 0.0, n: int = 48) -> jax.Array:
    x = 2 * np.pi * np.arange(n) / n
    return jnp.asarray(sum(a * np.cos(k * x + phase) for k, a in amplitudes.items()), jnp.float32)[None, None]


def test_a_pure_phase_error_is_only_a_phase_error():
    found = spectral_errors(waves({2: 1.0, 5: 0.5}, phase=0.4), waves({2: 1.0, 5: 0.5}))
    assert float(found.phase[0]) == pytest.approx(0.4, abs=1e-4)
    assert float(found.energy[0]) < 1e-5 and float(found.low[0]) < 1e-5


def test_a_pure_amplitude_error_is_only_an_energy_error():
    found = spectral_errors(1.1 * waves({2: 1.0, 5: 0.5}), waves({2: 1.0, 5: 0.5}))
    assert float(found.energy[0]) == pytest.approx(0.21, rel=1e-4)
    assert float(found.low[0]) == pytest.approx(0.21, rel=1e-4)
    assert float(found.phase[0]) < 1e-4


@pytest.mark.parametrize(("wavenumber", "band"), [(3, "low"), (12, "mid"), (20, "high")])
def test_a_band_error_shows_in_its_band(wavenumber, band):
    reference = waves({3: 1.0, 12: 1.0, 20: 1.0})
    found = spectral_errors(reference + 0.5 * waves({wavenumber: 1.0}), reference)._asdict()
    for name in ("low", "mid", "high"):
        assert float(found[name][0]) == pytest.approx(1.25 if name == band else 0, abs=1e-4)


def test_energy_error_does_not_let_bands_cancel():
    """Energy moved from one mode to another: band totals agree, the energy error does not."""
    found = spectral_errors(waves({3: 1.0}), waves({4: 1.0}))
    assert float(found.energy[0]) == pytest.approx(2, rel=1e-4)
    assert float(found.low[0]) == pytest.approx(0, abs=1e-4)


def test_a_state_without_energy_has_no_phase_error():
    found = spectral_errors(waves({2: 1.0}), jnp.zeros((1, 1, 48)))
    assert np.isnan(found.phase[0])
    assert phase_average(np.asarray([[np.nan], [0.2]])) == pytest.approx(0.2)


@pytest.mark.parametrize("points", [(16,), (15,), (8, 10), (6, 7, 8)])
def test_bands_partition_the_spectrum(points):
    assert (np.sum(bands(points), axis=0) == 1).all()


@pytest.mark.parametrize("n", [32, 33])
def test_energy_spectrum_is_parsevals(n):
    u = jax.random.normal(jax.random.PRNGKey(0), (4, 2, n))
    spectrum = energy_spectrum(u)
    assert float(spectrum.sum()) == pytest.approx(
        float(jnp.mean(jnp.sum(jnp.mean(u**2, axis=2), axis=1))), rel=1e-5
    )
