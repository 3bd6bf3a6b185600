"""Weights as symbols: coefficients of known equations are found again, and reactions that run fast."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgno.grid import Grid
from sgno.identify import warm_start
from sgno.identify.estimate import first_estimate, install
from sgno.identify.pairs import Pairs
from sgno.identify.selection import Selection
from sgno.identify.start import rollout_error
from sgno.identify.symbol_fit import fit_symbols, operators
from sgno.sgno_x import SGNOXConfig
from sgno.spectral import wavenumbers
from sgno.step import batch

POINTS = 32
UVV = ("0:1", "1:1", "1:1")


def smooth_fields(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random fields of a few waves, between 0 and 1."""
    x = 2 * np.pi * np.arange(POINTS) / POINTS
    k = np.arange(1, 5)[:, None]
    wave = np.cos(k * x + rng.uniform(0, 2 * np.pi, (count, 2, 4, 1))) * rng.uniform(0, 1, (count, 2, 4, 1))
    wave = wave.sum(2)
    low, high = wave.min(-1, keepdims=True), wave.max(-1, keepdims=True)
    return (wave - low) / (high - low)


def gray_scott(u: np.ndarray, frames: int, *, substeps: int = 100) -> np.ndarray:
    """u_t = D u'' + 0.4 (1 - u) - 10 u v², v_t = D/2 v'' - v + 10 u v²: Strang splitting, RK4 inside."""
    h = 1 / substeps
    k = np.arange(POINTS // 2 + 1)
    decay = np.exp(-0.5 * h * 0.01 * k**2 * np.array([[1.0], [0.5]]))

    def rates(u):
        reaction = 10 * u[:, 0] * u[:, 1] ** 2
        return np.stack([0.4 * (1 - u[:, 0]) - reaction, reaction - u[:, 1]], axis=1)

    diffuse = lambda u: np.fft.irfft(decay * np.fft.rfft(u), n=POINTS)
    states = [u]
    for _ in range(frames):
        for _ in range(substeps):
            u = diffuse(u)
            a = rates(u)
            b = rates(u + h / 2 * a)
            c = rates(u + h / 2 * b)
            u = diffuse(u + h / 6 * (a + 2 * b + 2 * c + rates(u + h * c)))
        states.append(u)
    return np.stack(states, axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def reaction() -> np.ndarray:
    return gray_scott(smooth_fields(np.random.default_rng(0), 40), 6)


def step_for(**settings):
    config = SGNOXConfig(**settings)
    return config.build(Grid(2, (POINTS,)), key=jax.random.PRNGKey(0))


def test_rates_have_every_order_up_to_four():
    rates, contributions = operators((POINTS,))
    k = 1j * wavenumbers((POINTS,))[0] / (POINTS / 2)
    for order, operator in zip((0, 1, 2), rates, strict=False):
        np.testing.assert_allclose(operator, k**order)
    np.testing.assert_allclose(rates[3], -(k**3))
    np.testing.assert_allclose(rates[4], k**4)
    assert len(contributions) == 2


def test_coefficients_of_a_step_of_this_form_are_found_again(reaction):
    """Pairs made by a step whose weights are symbols; the search starts elsewhere."""
    chosen = Selection((UVV,), (10,), True)
    settings = {"terms": chosen.terms, "cutoff": chosen.cutoff, "forcing": True, "stages": 4}
    step = step_for(**settings, inner_steps=4)
    k = wavenumbers((POINTS,))[0]
    now = reaction[:, ::3].reshape(-1, 2, POINTS)
    some = first_estimate(Pairs(now, now), step.grid, chosen)
    L = np.stack([-0.4 - 0.01 * k**2, -1.0 - 0.005 * k**2]).astype(complex)
    P = np.stack([np.full(k.shape, -10.0), np.full(k.shape, 10.0)])[:, None].astype(complex)
    f, K = np.zeros(L.shape, complex), np.zeros((2, *L.shape), complex)
    f[0, 0] = 0.4
    true = dataclasses.replace(some, weights=some.weights._replace(L=L, K=K, P=P, f=f))
    then = np.asarray(batch(install(step, true), jnp.asarray(now)))
    pairs = Pairs(now, then)
    found = fit_symbols(step, first_estimate(pairs.slower(), step.grid, chosen), pairs).weights
    np.testing.assert_allclose(found.L[:, :8], L[:, :8], atol=2e-3)
    np.testing.assert_allclose(found.P[:, 0, :8], P[:, 0, :8], atol=2e-2)
    np.testing.assert_allclose(found.f[:, 0], f[:, 0], atol=2e-3)


@pytest.mark.slow
def test_a_reaction_that_runs_its_course_between_frames_is_found(reaction):
    """Data of another solver. Most changes in the first frames, where no regression of one step fits."""
    step = warm_start(step_for(max_terms=2), reaction, key=jax.random.PRNGKey(1))
    assert step.config.terms == (UVV,)
    fresh = gray_scott(smooth_fields(np.random.default_rng(1), 4), 6)
    assert rollout_error(step, fresh) < 0.02
