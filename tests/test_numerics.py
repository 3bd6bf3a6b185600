"""Corners of the arithmetic: parameters at 0, tiny, huge and mixed; denormal and huge states; reruns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import enable_x64

from sgno.grid import Grid
from sgno.nn.sgno import SGNO, SGNOConfig
from sgno.sgno_x import SGNOXConfig
from sgno.solve import evaluate
from sgno.step import batch, prepare

GRID = Grid(1, (16,))
CORNERS = (0.0, 1e-30, -1e-30, 1e6, -1e6)
STATES = jax.random.normal(jax.random.PRNGKey(1), (2, *GRID.shape))


@pytest.fixture(scope="module")
def sgno() -> SGNO:
    return SGNOConfig(3, 4, 2).build(GRID, key=jax.random.PRNGKey(0))


@pytest.fixture(scope="module")
def sgno_x():
    config = SGNOXConfig(start="random", max_terms=2, stages=2, inner_steps=1)
    return config.build(GRID, key=jax.random.PRNGKey(0))


@eqx.filter_jit
def coefficients_and_slopes(step):
    """The prepared coefficients and the gradient of their sum: every constraint and norm is in them."""

    def total(step):
        prepared = eqx.filter(prepare(step), eqx.is_inexact_array)
        return sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(prepared))

    return prepare(step), eqx.filter_grad(total)(step)


@eqx.filter_jit
def stepped_and_slopes(step, u):
    return batch(step, u), eqx.filter_grad(lambda s: jnp.mean(jnp.square(batch(s, u))))(step)


def at_corner(step, choose):
    """Every parameter replaced by what `choose` gives for its shape."""

    def replaced(leaf):
        return jnp.asarray(choose(leaf.shape), jnp.float32) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(replaced, step)


def all_finite(tree) -> bool:
    leaves = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in leaves)


@pytest.mark.parametrize("value", CORNERS)
def test_coefficients_and_their_gradients_are_finite_at_every_corner(sgno, value):
    step = at_corner(sgno, lambda shape: np.full(shape, value))
    assert all_finite(coefficients_and_slopes(step))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_coefficients_and_their_gradients_are_finite_at_mixed_corners(sgno, seed):
    rng = np.random.default_rng(seed)
    step = at_corner(sgno, lambda shape: rng.choice(CORNERS, shape))
    assert all_finite(coefficients_and_slopes(step))


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-30, 1e-6, 1.0, 10.0]))
@settings(max_examples=8, deadline=None)
def test_a_step_and_its_gradient_are_finite_wherever_its_weights_are_moderate(sgno, seed, size):
    rng = np.random.default_rng(seed)
    step = at_corner(sgno, lambda shape: size * rng.choice([-1.0, 0.0, 1.0], shape))
    assert all_finite(stepped_and_slopes(step, STATES))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None)
def test_sgno_x_steps_are_finite_and_bounded_at_every_corner(sgno_x, seed):
    rng = np.random.default_rng(seed)
    step = at_corner(sgno_x, lambda shape: rng.choice(CORNERS, shape))
    after, _ = stepped_and_slopes(step, STATES)
    assert np.isfinite(np.asarray(after)).all()
    assert np.abs(after).max() <= float(sgno_x.trapping.sup_bound()[0]) * (1 + 1e-4)


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 1e-20, 1e15])
def test_denormal_and_huge_states_stay_finite(sgno, sgno_x, size):
    u = jnp.asarray(size * np.sign(np.asarray(STATES)), jnp.float32)
    for step in (sgno, sgno_x):
        after, slopes = stepped_and_slopes(step, u)
        assert np.isfinite(np.asarray(after)).all()
        if size <= 1:
            assert all_finite(slopes)


def test_states_that_are_not_finite_leave_sgno_x_bounded(sgno_x):
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        u = STATES.at[0, 0, 3].set(bad)
        after, _ = stepped_and_slopes(sgno_x, u)
        assert np.isfinite(np.asarray(after)).all()


def test_a_rerun_gives_the_same_bits(sgno):
    reference = np.random.default_rng(0).normal(size=(2, 9, 1, 16)).astype(np.float32)
    first = evaluate(sgno, reference)
    jax.clear_caches()
    again = evaluate(sgno, reference)
    assert first.nrmse.tobytes() == again.nrmse.tobytes()
    assert first.spectrum.tobytes() == again.spectrum.tobytes()


def test_float64_agrees_with_float32_to_its_precision(sgno):
    reference = np.random.default_rng(0).normal(size=(2, 9, 1, 16)).astype(np.float32)
    single = evaluate(sgno, reference)
    with enable_x64(True):
        double = evaluate(
            jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), sgno),
            reference,
            precision="float64",
        )
    assert double.nrmse.dtype == np.float64
    np.testing.assert_allclose(single.nrmse, double.nrmse, rtol=1e-4)
