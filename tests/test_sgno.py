"""SGNO: counts, constraints under adversarial parameters, agreement with the equations written densely."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf, expit

from sgno.grid import Grid
from sgno.nn.layer import norms_of, prepare_layers, unstack
from sgno.nn.sgno import SGNO, SGNOConfig
from sgno.registry import get_model
from sgno.spectral import from_retained, phi1, radius, retained_modes
from sgno.step import batch, count_parameters

KEY = jax.random.PRNGKey(0)
SMALL = {
    1: (SGNOConfig(3, 4, 2), (12,)),
    2: (SGNOConfig(3, 3, 2), (8, 9)),
    3: (SGNOConfig(2, 2, 2), (5, 6, 4)),
}


@eqx.filter_jit
def one(step: SGNO, u: jax.Array) -> jax.Array:
    """One step, compiled: call by call, an operation at a time, it takes three times as long to start."""
    return step(u)


@pytest.mark.parametrize(
    ("dim", "params", "real"), [(1, 30_573, 52_595), (2, 56_402, 101_402), (3, 192_827, 365_627)]
)
def test_parameter_counts_are_the_papers(dim, params, real):
    points = {1: (160,), 2: (64, 64), 3: (32, 32, 32)}[dim]
    step = eqx.filter_eval_shape(lambda: get_model("sgno", dim).build(Grid(1, points), key=KEY))
    assert count_parameters(step) == (params, real)


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["ends", "none", "periodic"]),
)
@settings(max_examples=25, deadline=None)
def test_parameter_count_formula(d, channels, width, modes, blocks, coordinates):
    step = eqx.filter_eval_shape(
        lambda: SGNO(
            SGNOConfig(width, modes, blocks, coordinates=coordinates), Grid(channels, (8,) * d), key=KEY
        )
    )
    k = 2 ** (d - 1) * modes**d
    extra = {"ends": d, "none": 0, "periodic": 2 * d}[coordinates]
    layer = width**2 + width + 4 * width**2 + 3 * width + width * k + 4 * width + width**2 * k
    expected = (channels + extra + 1) * width + blocks * layer + 129 * channels + 128 * (width + 1)
    assert count_parameters(step) == (expected, expected + blocks * width**2 * k)


def layers(step: SGNO) -> Any:
    """The layers of a model one by one."""
    return unstack(step.layers)


def adversarial(step: SGNO, seed: int, size: float) -> SGNO:
    """Every parameter replaced by values up to `size`, of mixed magnitude and sign."""
    rng = np.random.default_rng(seed)

    def shake(leaf):
        magnitude = size * 10.0 ** rng.uniform(-8, 0, leaf.shape)
        return jnp.asarray(rng.choice([-1, 0, 1], leaf.shape) * magnitude, jnp.float32)

    return jax.tree.map(lambda x: shake(x) if eqx.is_inexact_array(x) else x, step)


@eqx.filter_jit
def coefficients(step: SGNO):
    """Rates, gains, budgets, mixers and correction weights of every layer."""
    norms: Any = norms_of(step.layers)
    found = []
    for i, layer in enumerate(layers(step)):
        lam = layer.generator()
        r = layer.budget(lam.shape[1:])
        matrices = [matrix[i] for matrix in norms.matrices]
        found.append((lam, phi1(lam), r, layer.mixers(norms.excess[i]), matrices))
    return found


@pytest.mark.parametrize("dim", [1, 2, 3])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.floats(-3, 6))
def test_constraints_hold_for_every_parameter_value(dim, seed, exponent):
    config, points = SMALL[dim]
    step = adversarial(config.build(Grid(1, points), key=KEY), seed, 10.0**exponent)
    for lam, gain, r, mixer, correction in jax.tree.map(np.asarray, coefficients(step)):
        assert (lam <= 0).all()
        assert (np.exp(lam) <= 1).all()
        assert (gain > 0).all() and (gain <= 1).all()
        assert (r > 0).all() and (r < 2).all()
        re, im = (part.astype(np.float64).reshape(*part.shape[:2], -1) for part in mixer)
        assert np.linalg.norm(re + 1j * im, ord=2, axis=(0, 1)).max() <= 1 + 1e-6
        for weight in correction:
            assert np.linalg.norm(weight.astype(np.float64), ord=2) <= 1 + 1e-6


@jax.jit
def gradient_of_coefficients(layer):
    def total(layer):
        return sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(prepare_layers(layer)))

    return jax.grad(total)(layer)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), exponent=st.floats(-3, 6))
def test_gradients_of_the_coefficients_are_finite_at_extreme_parameters(seed, exponent):
    config, points = SMALL[1]
    layer = adversarial(config.build(Grid(1, points), key=KEY), seed, 10.0**exponent).layers
    gradient = gradient_of_coefficients(layer)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def dense_step(step: SGNO, u: np.ndarray) -> np.ndarray:
    """The paper's equation in float64, with explicit sums over modes and points."""
    gelu = lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))
    softplus = lambda x: np.logaddexp(0, x)
    wide: Any = jax.tree.map(lambda x: np.asarray(x, np.float64) if eqx.is_array(x) else x, step)
    points, d = u.shape[1:], u.ndim - 1
    x = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in points), indexing="ij"))
    v = np.tensordot(wide.lift.weight, np.concatenate([u, x]), 1) + wide.lift.bias.reshape(-1, *(1,) * d)
    k = retained_modes(d, step.config.num_modes)
    grid = np.stack(np.meshgrid(*(np.arange(n) / n for n in points), indexing="ij"))
    wave = np.exp(2j * np.pi * np.tensordot(k, grid, axes=(0, 0)))
    rho, m_axes, x_axes = radius(d, step.config.num_modes), tuple(range(d)), tuple(range(-d, 0))
    twice = np.where(k[-1] == 0, 1, 2)
    column = (-1, *(1,) * d)

    def forward(v):
        return np.tensordot(v, wave.conj(), axes=(tuple(range(1, d + 1)), x_axes))

    of_layers = layers(wide)
    for i, layer in enumerate(of_layers):
        g, b = layer.generator, layer.budget
        lam = -(softplus(g.theta) + softplus(g.b.reshape(column) - softplus(g.s).reshape(column) * rho))
        r = 2 * expit(b.a.reshape(column) - softplus(b.t).reshape(column) * rho)
        mixer = layer.mixer.real + 1j * layer.mixer.imag
        norm = np.linalg.norm(mixer.reshape(*mixer.shape[:2], -1), ord=2, axis=(0, 1)).reshape(
            mixer.shape[2:]
        )
        w1, w2 = (
            a.weight / np.linalg.norm(a.weight, ord=2)
            for a in (layer.correction.first, layer.correction.second)
        )
        c = np.tensordot(w1, v, 1) + layer.correction.first.bias.reshape(column)
        c = np.tensordot(w2, gelu(c), 1) + layer.correction.second.bias.reshape(column)
        mixed = np.einsum("oi...,i...->o...", mixer / np.maximum(1, norm), forward(c))
        modes = np.exp(lam) * forward(v) + np.expm1(lam) / lam * r * mixed
        summed: Any = np.tensordot(modes * twice, wave, axes=(tuple(range(1, d + 1)), m_axes))
        branch = summed.real / np.prod(points)
        v = np.tensordot(layer.local.weight, v, 1) + layer.local.bias.reshape(column) + branch
        if i + 1 < len(of_layers):
            v = gelu(v)
    q = wide.head
    hidden = gelu(np.tensordot(q.first.weight, v, 1) + q.first.bias.reshape(column))
    return u + np.tensordot(q.second.weight, hidden, 1) + q.second.bias.reshape(column)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("channels", [1, 2])
def test_agrees_with_a_dense_writing_of_the_equation(dim, channels):
    config, points = SMALL[dim]
    step = config.build(Grid(channels, points), key=KEY)
    # Mixers above norm one in some modes, so that the cap is at work.
    step = eqx.tree_at(
        lambda s: s.layers.mixer.real, step, replace_fn=lambda x: x.at[0].multiply(3).at[0].add(0.3)
    )
    u = np.random.default_rng(0).normal(size=(channels, *points))
    np.testing.assert_allclose(one(step, jnp.asarray(u, jnp.float32)), dense_step(step, u), atol=2e-5)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_batch_equals_vmap_equals_one_by_one(dim):
    config, points = SMALL[dim]
    step = config.build(Grid(2, points), key=KEY)
    u = jax.random.normal(KEY, (3, 2, *points))
    one_by_one = jnp.stack([one(step, state) for state in u])
    together, mapped = eqx.filter_jit(lambda s, u: (batch(s, u), jax.vmap(s)(u)))(step, u)
    np.testing.assert_allclose(together, one_by_one, atol=1e-5)
    np.testing.assert_allclose(mapped, one_by_one, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_translation_equivariance_without_coordinates(dim):
    config, points = SMALL[dim]
    step = dataclasses.replace(config, coordinates="none").build(Grid(1, points), key=KEY)
    u = jax.random.normal(KEY, (1, *points))
    shift, axes = tuple(range(1, dim + 1)), tuple(range(1, dim + 1))
    np.testing.assert_allclose(
        one(step, jnp.roll(u, shift, axes)), jnp.roll(one(step, u), shift, axes), atol=1e-5
    )


def test_coordinates_break_translation_equivariance():
    config, points = SMALL[1]
    step = config.build(Grid(1, points), key=KEY)
    u = jax.random.normal(KEY, (1, *points))
    assert np.abs(one(step, jnp.roll(u, 3, 1)) - jnp.roll(one(step, u), 3, 1)).max() > 1e-3


@pytest.mark.parametrize(
    ("dim", "ablation"),
    [
        *((dim, {}) for dim in (1, 2, 3)),
        *((1, change) for change in ({"generator": "unconstrained"}, {"correction": "none"})),
        *((dim, {"update": "residual"}) for dim in (1, 3)),
        (2, {"update": "pointwise"}),
    ],
)
def test_every_parameter_receives_a_gradient(dim, ablation):
    config, points = SMALL[dim]
    step = dataclasses.replace(config, **ablation).build(Grid(1, points), key=KEY)
    u = jax.random.normal(KEY, (4, 1, *points))
    weight = jax.random.normal(jax.random.PRNGKey(1), u.shape)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda s: jnp.sum(weight * batch(s, u))))(step)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
        assert np.abs(leaf).max() > 0, jax.tree_util.keystr(path)


def test_ablations_remove_what_they_say():
    build = lambda **kw: SGNOConfig(3, 4, 1, **kw).build(Grid(1, (12,)), key=KEY).layers
    assert (np.asarray(unstack(build(generator="unconstrained"))[0].generator()) > 0).any()
    residual = build(update="residual")
    assert residual.generator is None and residual.budget is None and residual.mixer is not None
    assert build(correction="none").mixer is None and build(correction="none").correction is None
    # Residual with A = 0 is the identity on retained modes plus the local path.
    silent = eqx.tree_at(lambda s: (s.mixer.real, s.mixer.imag), residual, replace_fn=jnp.zeros_like)
    v = from_retained(jax.random.normal(KEY, (4, 2, 3, 2)), (12,))
    np.testing.assert_allclose(
        unstack(prepare_layers(silent))[0](v, 4), unstack(silent)[0].local(v) + v, atol=1e-5
    )


def test_the_pointwise_update_commutes_with_every_permutation_of_points():
    config = SGNOConfig(3, 3, 2, coordinates="none", update="pointwise")
    step = config.build(Grid(2, (6, 8)), key=KEY)
    assert step.layers.generator is None and step.layers.budget is None and step.layers.mixer is None
    u = jax.random.normal(KEY, (2, 6, 8))
    order = np.random.default_rng(0).permutation(48)
    permuted = lambda u: u.reshape(2, -1)[:, order].reshape(u.shape)
    np.testing.assert_allclose(one(step, permuted(u)), permuted(one(step, u)), atol=1e-6)
    width = 3
    layer = width**2 + width + 4 * width**2 + 3 * width
    expected = (2 + 1) * width + 2 * layer + 129 * 2 + 128 * (width + 1)
    assert count_parameters(step) == (expected, expected)
    # The other updates mix points.
    spectral = dataclasses.replace(config, update="residual").build(Grid(2, (6, 8)), key=KEY)
    assert np.abs(one(spectral, permuted(u)) - permuted(one(spectral, u))).max() > 1e-3


def test_the_same_weights_run_on_a_finer_grid():
    """A layer acts on functions: on band-limited input, refinement commutes with the spectral branch."""
    step = SGNOConfig(2, 3, 1, coordinates="none", correction="none").build(Grid(1, (8,)), key=KEY)
    fine = lambda n: jnp.sin(2 * jnp.pi * jnp.arange(n) / n)[None] + 0.3
    coarse_result, fine_result = one(step, fine(16)), one(step, fine(64))
    np.testing.assert_allclose(fine_result[:, ::4], coarse_result, atol=1e-5)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="modes=26 needs at least 52 points per axis, but the grid has 20"):
        get_model("sgno", 1).build(Grid(1, (20,)), key=KEY)
    step = SGNOConfig(2, 3, 1).build(Grid(1, (8,)), key=KEY)
    with pytest.raises(ValueError, match="2 channels, but the model was built for 1"):
        step(jnp.zeros((2, 8)))
    with pytest.raises(ValueError, match="width=0 must be at least 1"):
        SGNOConfig(0, 3, 1)
