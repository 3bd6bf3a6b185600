"""Phi functions, truncated transforms and spectral norms against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgno.spectral import from_modes, mode_grid, phi1, phi2, radius, spectral_norm_bound, to_modes

GRIDS = [((52,), 26), ((160,), 26), ((20, 23), 10), ((64, 64), 10), ((12, 13, 14), 6)]


def exact_phi(order, z):
    with mpmath.workdps(400):
        z = mpmath.mpc(z)
        if z == 0:
            return complex(1 / mpmath.factorial(order))
        taylor = sum(z**n / mpmath.factorial(n) for n in range(order))
        return complex((mpmath.exp(z) - taylor) / z**order)


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e6, 50), st.sampled_from([1, 2]))
def test_phi_of_real_arguments(x, order):
    x = float(np.float32(x))
    value = float((phi1 if order == 1 else phi2)(jnp.float32(x)))
    assert value == pytest.approx(exact_phi(order, x).real, rel=3e-6, abs=1e-37)


@settings(max_examples=300, deadline=None)
@given(st.floats(-300, 20), st.floats(-300, 300), st.sampled_from([1, 2]))
def test_phi_of_complex_arguments(x, y, order):
    z = complex(np.complex64(complex(x, y)))
    value = complex((phi1 if order == 1 else phi2)(jnp.complex64(z)))
    exact = exact_phi(order, z)
    # e^z carries the rounding of the angle y, which no formula can undo.
    assert abs(value - exact) <= 1e-5 * max(abs(exact), abs(np.exp(z)) / max(abs(z) ** order, 1))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-6, 1e-3, 0.3, 0.4999, 0.5001, 2.0])
def test_phi1_and_its_gradient_near_zero(scale):
    for z in (-scale, scale):
        gradient = float(jax.grad(phi1)(jnp.float32(z)))
        with mpmath.workdps(400):
            m = mpmath.mpf(float(np.float32(z)))
            exact = float((mpmath.exp(m) * (m - 1) + 1) / m**2)
        assert gradient == pytest.approx(exact, rel=2e-5)


def test_phi1_at_zero_is_one_with_finite_gradients():
    zero = jnp.float32(0)
    assert float(phi1(zero)) == 1.0
    assert float(jax.grad(phi1)(zero)) == 0.5
    assert float(jax.grad(jax.grad(phi1))(zero)) == pytest.approx(1 / 3)
    assert float(phi1(jnp.float32(-0.0))) == 1.0


def test_phi_of_huge_arguments_has_a_finite_gradient():
    z = -jnp.logspace(1, 12, 12, dtype=jnp.float32)
    assert np.isfinite(jax.vmap(jax.grad(phi1))(z)).all() and np.isfinite(jax.vmap(jax.grad(phi2))(z)).all()


def test_phi1_of_nonpositive_arguments_is_a_contraction():
    z = -jnp.logspace(-30, 8, 4001, dtype=jnp.float32)
    value = np.asarray(phi1(z))
    assert value.min() > 0 and value.max() <= 1


@pytest.mark.parametrize(("points", "num_modes"), GRIDS)
@pytest.mark.parametrize("method", ["matrix", "fft"])
def test_to_modes_is_the_dft(points, num_modes, method):
    v = np.random.default_rng(0).normal(size=(2, 3, *points))
    k = mode_grid(len(points), num_modes)
    x = np.stack(np.meshgrid(*(np.arange(n) / n for n in points), indexing="ij"))
    phase = np.exp(-2j * np.pi * np.tensordot(k, x, axes=(0, 0)))
    direct = np.tensordot(
        phase, v, axes=(tuple(range(len(points), 2 * len(points))), tuple(range(2, v.ndim)))
    )
    got = np.asarray(to_modes(jnp.asarray(v, jnp.float32), num_modes, method=method))
    np.testing.assert_allclose(
        got[..., 0, :, :] + 1j * got[..., 1, :, :], direct, atol=2e-6 * np.abs(direct).max()
    )


@pytest.mark.parametrize(("points", "num_modes"), GRIDS)
@pytest.mark.parametrize("method", ["matrix", "fft"])
def test_from_modes_is_the_real_part_of_the_one_sided_sum(points, num_modes, method):
    rng = np.random.default_rng(1)
    k = mode_grid(len(points), num_modes)
    c = rng.normal(size=(*k.shape[1:], 2, 3)) + 1j * rng.normal(size=(*k.shape[1:], 2, 3))
    x = np.stack(np.meshgrid(*(np.arange(n) / n for n in points), indexing="ij"))
    phase = np.exp(2j * np.pi * np.tensordot(k, x, axes=(0, 0)))
    weight = np.where(k[-1] == 0, 1, 2)[..., None, None]
    modes = tuple(range(len(points)))
    direct = np.tensordot(c * weight, phase, axes=(modes, modes)).real / np.prod(points)
    got = from_modes(jnp.asarray(np.stack([c.real, c.imag], axis=-3), jnp.float32), points, method=method)
    np.testing.assert_allclose(got, direct, atol=2e-6 * np.abs(direct).max())


def test_band_limited_fields_survive_the_round_trip():
    c = jax.random.normal(jax.random.PRNGKey(0), (8, 4, 2, 3, 2))
    # Mode -m of the first axis has no retained partner +m, so with k_2 = 0 no real field has it alone.
    c = c.at[4, 0].set(0)
    field = from_modes(c, (16, 16))
    np.testing.assert_allclose(from_modes(to_modes(field, 4), (16, 16)), field, atol=1e-5)


def test_radius_does_not_depend_on_the_sign_of_the_frequency():
    rho, k = radius(3, 6), mode_grid(3, 6)
    assert rho.shape == (12, 12, 6)
    np.testing.assert_allclose(rho, np.sqrt((k**2).sum(0) / 3) / 5)
    assert rho[0, 0, 0] == 0 and rho[5, 5, 5] == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(-6, 6), st.sampled_from(["full", "rank one", "degenerate", "zero"]))
def test_norm_bound_lies_above_the_norm_and_close_to_it(seed, exponent, kind):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(6, 6, 5)) + 1j * rng.normal(size=(6, 6, 5))
    if kind == "rank one":
        a = a[:, :1] * a[:1]
    elif kind == "degenerate":
        a = np.linalg.qr(np.moveaxis(a, -1, 0))[0].transpose(1, 2, 0)
    elif kind == "zero":
        a = np.zeros_like(a)
    a = a * 10.0**exponent
    re, im = jnp.asarray(a.real, jnp.float32), jnp.asarray(a.imag, jnp.float32)
    stored = np.asarray(re, np.float64) + 1j * np.asarray(im, np.float64)
    exact = np.linalg.svd(np.moveaxis(stored, -1, 0), compute_uv=False)[:, 0]
    bound = np.asarray(spectral_norm_bound(re, im), np.float64)
    assert (bound >= exact).all()
    assert (bound <= exact * 6 ** (1 / 512) * (1 + 2e-5)).all()


def test_norm_bound_has_the_gradient_of_the_norm():
    re, im = jax.random.normal(jax.random.PRNGKey(0), (2, 5, 4, 7))
    d_re, d_im = jax.grad(lambda re, im: spectral_norm_bound(re, im).sum(), argnums=(0, 1))(re, im)
    u, _, vh = np.linalg.svd(np.moveaxis(np.asarray(re) + 1j * np.asarray(im), -1, 0))
    exact: Any = u[:, :, 0, None] * vh[:, 0, None, :]
    np.testing.assert_allclose(np.moveaxis(np.asarray(d_re), -1, 0), exact.real, atol=2e-4)
    np.testing.assert_allclose(np.moveaxis(np.asarray(d_im), -1, 0), exact.imag, atol=2e-4)


def test_norm_bound_of_a_zero_matrix_has_a_finite_gradient():
    gradient = jax.grad(lambda a: spectral_norm_bound(a))(jnp.zeros((3, 2)))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("size", [1e-3, 0.2, 1.0, 1e3])
def test_a_cap_spares_work_and_changes_nothing_above_it(size):
    """Also mapped, and with one matrix in many above the cap."""
    re, im = size * jax.random.normal(jax.random.PRNGKey(0), (2, 3, 5, 5, 7))
    re = re.at[1, :, :, 2].mul(50)
    bound = lambda cap: lambda re, im: spectral_norm_bound(re, im, cap=cap)
    capped = lambda cap: lambda re, im: jnp.maximum(1.0, jax.vmap(bound(cap))(re, im))
    np.testing.assert_allclose(capped(1.0)(re, im), capped(None)(re, im), rtol=1e-5)
    exact = np.linalg.svd(np.moveaxis(np.asarray(re) + 1j * np.asarray(im), -1, 1), compute_uv=False)[..., 0]
    assert (np.asarray(capped(1.0)(re, im)) >= np.maximum(1, exact)).all()
    # Where nothing comes near the cap, the bound is the loose one of the first product: others were spared.
    loose, tight = (np.asarray(bound(cap)(re[0], im[0])) for cap in (1.0, None))
    spared = loose > 1.01 * tight
    assert spared.all() if size < 0.1 else not spared[tight > 1].any()
    slope = lambda cap: jax.grad(lambda re: capped(cap)(re, im).sum())(re)
    np.testing.assert_allclose(slope(1.0), slope(None), atol=1e-4)
