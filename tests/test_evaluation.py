"""Errors, scores and spectral diagnostics against APEBench and against errors of known size."""

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

from sgno.errors import InputError
from sgno.solve import evaluate, gmean, stable_step
from sgno.solve.evaluate import frame_stride, sample_reference
from sgno.solve.metrics import (
    SpectralErrors,
    bands,
    correlation,
    energy_spectra,
    nonfinite_steps,
    nrmse,
    spectral_averages,
    spectral_errors,
)


class Multiply(eqx.Module):
    """u+ = a u."""

    a: jax.Array

    def __call__(self, u):
        return self.a * u


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


@pytest.mark.parametrize("limit", ["_CHUNK_NUMBERS", "_STATE_NUMBERS"])
def test_evaluation_in_parts_equals_evaluation_at_once(limit, monkeypatch):
    """Some times at once, and some trajectories at once."""
    reference = np.random.default_rng(0).normal(size=(3, 12, 1, 16)).astype(np.float32)
    step = Multiply(jnp.asarray(1.01))
    whole = evaluate(step, reference)
    done = []
    monkeypatch.setattr(sys.modules["sgno.solve.evaluate"], limit, {"_CHUNK_NUMBERS": 200}.get(limit, 32))
    parts = evaluate(step, reference, on_progress=done.append)
    assert done == ([3] if limit == "_CHUNK_NUMBERS" else [2, 3])
    for name in ("nrmse", "correlation", "spectrum", "reference_spectrum", "sample"):
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), rtol=1e-5)
    np.testing.assert_allclose(whole.spectral, parts.spectral, rtol=1e-4)
    fewer = evaluate(step, reference, samples=2, steps=5)
    np.testing.assert_allclose(fewer.nrmse, whole.nrmse[:5, :2], rtol=1e-5)


def test_nothing_to_compare_is_refused():
    with pytest.raises(InputError, match="the least that can be compared"):
        evaluate(Multiply(jnp.asarray(1.0)), np.zeros((3, 1, 1, 16), np.float32))


@pytest.mark.parametrize(
    ("shape", "frames"),
    [((81, 1, 16), (81, 1, 16)), ((81, 2, 130, 8), (41, 2, 65, 8)), ((3, 1, 4, 4, 4), (3, 1, 3, 4, 4))],
)
def test_the_sample_of_a_perfect_rollout_is_that_of_the_reference(shape, frames):
    """u+ = 2^(1/8) u, from the first trajectory alone."""
    times = 2.0 ** (np.arange(shape[0]) / 8)
    start = np.random.default_rng(0).normal(size=(2, 1, *shape[1:]))
    reference = (start * times.reshape(1, -1, *(1,) * (len(shape) - 1))).astype(np.float32)
    sample = evaluate(Multiply(jnp.asarray(2.0 ** (1 / 8), jnp.float32)), reference).sample
    assert sample.shape == frames and sample.dtype == np.float16
    np.testing.assert_allclose(sample, sample_reference(reference), rtol=2e-3)
    assert frame_stride(len(shape) - 2, shape[0] - 1) == (shape[0] - 1) // (frames[0] - 1)


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
    some = SpectralErrors(*[np.asarray([[np.nan], [0.2]])] * 5)
    assert spectral_averages(some)["phase"] == pytest.approx(0.2)
    assert np.isnan(spectral_averages(some)["energy"])


@pytest.mark.parametrize("points", [(16,), (15,), (8, 10), (6, 7, 8)])
def test_bands_partition_the_spectrum(points):
    assert (np.sum(bands(points), axis=0) == 1).all()


@pytest.mark.parametrize("n", [32, 33])
def test_energy_spectra_are_parsevals(n):
    u = jax.random.normal(jax.random.PRNGKey(0), (4, 2, n))
    spectrum = energy_spectra(u).mean(axis=0)
    assert float(spectrum.sum()) == pytest.approx(
        float(jnp.mean(jnp.sum(jnp.mean(u**2, axis=2), axis=1))), rel=1e-5
    )
