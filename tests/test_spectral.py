"""Bases against dense matrices; phi functions, retained modes and spectral norms against closed forms."""

import ast
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgno
import sgno.spectral.retained
from sgno.errors import InputError
from sgno.spectral import (
    Cosine,
    Sine,
    derivative,
    from_retained,
    grid_points,
    mode_numbers,
    mode_shape,
    multiplicity,
    phi1,
    phi2,
    phi3,
    radius,
    retained_modes,
    shared_index,
    spectral_norm_bound,
    to_modes,
    to_points,
    to_retained,
    wavenumbers,
)

PHI = {1: phi1, 2: phi2, 3: phi3}
GRIDS = [((52,), 26), ((160,), 26), ((20, 23), 10), ((64, 64), 10), ((12, 13, 14), 6)]


def exact_phi(order, z):
    with mpmath.workdps(400):
        z = mpmath.mpc(z)
        if z == 0:
            return complex(1 / mpmath.factorial(order))
        taylor = sum(z**n / mpmath.factorial(n) for n in range(order))
        return complex((mpmath.exp(z) - taylor) / z**order)


@settings(max_examples=300, deadline=None)
@given(st.floats(-1e6, 50), st.sampled_from([1, 2, 3]))
def test_phi_of_real_arguments(x, order):
    x = float(np.float32(x))
    value = float(PHI[order](jnp.float32(x)))
    assert value == pytest.approx(exact_phi(order, x).real, rel=3e-6, abs=1e-37)


@settings(max_examples=300, deadline=None)
@given(st.floats(-300, 20), st.floats(-300, 300), st.sampled_from([1, 2, 3]))
def test_phi_of_complex_arguments(x, y, order):
    z = complex(np.complex64(complex(x, y)))
    value = complex(PHI[order](jnp.complex64(z)))
    exact = exact_phi(order, z)
    # e^z carries the rounding of the angle y, which no formula can undo.
    assert abs(value - exact) <= 1e-5 * max(abs(exact), abs(np.exp(z)) / max(abs(z) ** order, 1))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_phi_on_the_host_has_double_precision(order):
    size, angle = np.meshgrid(10.0 ** np.linspace(-8, 2, 60), np.linspace(0.5, 1.5, 9) * np.pi)
    for z in (np.concatenate([[0], (size * np.exp(1j * angle)).ravel()]), -size.ravel(), size.ravel()[:100]):
        exact = np.array([exact_phi(order, x) for x in z])
        value = PHI[order](z)
        assert isinstance(value, np.ndarray) and value.dtype == z.dtype
        np.testing.assert_allclose(value, exact if np.iscomplexobj(z) else np.real(exact), rtol=2e-13)


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


AXES = [
    *(n for n in (6, 7)),
    *(kind(n, at) for kind in (Sine, Cosine) for n in (2, 6, 7) for at in ("walls", "centres")),
]
BASES = [
    *((axis,) for axis in AXES),
    (6, 5),
    (5, 6),
    (4, 5, 6),
    (Sine(5), 6),
    (6, Cosine(5, "centres")),
    (Cosine(4), Sine(5, "centres")),
    (5, Sine(4), 4),
    (Sine(4), Cosine(5), Sine(3, "centres")),
]


def nodes(axis) -> np.ndarray:
    if isinstance(axis, int):
        return 2 * np.pi * np.arange(axis) / axis
    if axis.at == "walls":
        return np.pi * np.arange(axis.points) / (axis.points - 1)
    return np.pi * (np.arange(axis.points) + 0.5) / axis.points


def functions(basis, x) -> np.ndarray:
    """e_k(x) of every stored mode at a product of points, `(*points, *modes)`, from the definition."""
    total = np.ones(())
    for axis, k, x_axis in zip(basis, mode_numbers(basis), x, strict=True):
        angle = np.outer(x_axis, k)
        if isinstance(axis, int):
            one = np.exp(1j * angle)
        else:
            one = np.sin(angle) if isinstance(axis, Sine) else np.cos(angle)
        total = np.multiply.outer(total, one)
    d = len(basis)
    return total.transpose(*range(0, 2 * d, 2), *range(1, 2 * d, 2))


def synthesis(basis, x=None) -> np.ndarray:
    """The dense matrix from amplitudes to points: m(k) e_k(x)."""
    return functions(basis, [nodes(axis) for axis in basis] if x is None else x) * multiplicity(basis)


def smooth_amplitudes(basis, limit: int, seed: int = 0) -> np.ndarray:
    """Amplitudes of a real field with wavenumbers up to `limit`; fields on different grids agree."""
    k = wavenumbers(basis)
    draw = lambda part: np.sin(np.tensordot([1.3, 0.7, 2.1][: len(basis)], k, 1) + seed + part)
    v = draw(0) + (1j * draw(1) if any(isinstance(axis, int) for axis in basis) else 0)
    inside = np.all(np.abs(k) <= limit, axis=0) & (multiplicity(basis) > 0)
    # What a real field cannot have (an imaginary mean, say) does not survive a round trip.
    return to_modes(np.asarray(to_points(v * inside, basis)), basis)


@pytest.mark.parametrize("basis", BASES, ids=str)
@pytest.mark.parametrize("host", [True, False], ids=["numpy", "jax"])
def test_transforms_are_their_dense_matrices(basis, host):
    d, rng = len(basis), np.random.default_rng(0)
    u = rng.normal(size=(3, *grid_points(basis)))
    for i, axis in enumerate(basis):
        if isinstance(axis, Sine) and axis.at == "walls":
            np.moveaxis(u, i + 1, 0)[[0, -1]] = 0
    array = (
        (lambda x: x)
        if host
        else (lambda x: jnp.asarray(x, np.complex64 if np.iscomplexobj(x) else np.float32))
    )
    tolerance = 1e-13 if host else 3e-6
    v = np.asarray(to_modes(array(u), basis))
    assert v.shape == (3, *mode_shape(basis))
    assert np.iscomplexobj(v) == any(isinstance(axis, int) for axis in basis)
    matrix = synthesis(basis)
    back = np.real(np.tensordot(v, matrix, axes=(range(1, d + 1), range(d, 2 * d))))
    np.testing.assert_allclose(back, u, atol=tolerance)
    np.testing.assert_allclose(to_points(array(v), basis), u, atol=tolerance)
    weight = np.ones(())
    for axis in basis:
        w = np.ones(grid_points((axis,))[0])
        if not isinstance(axis, int) and axis.at == "walls":
            w[[0, -1]] = 0.5
        weight = np.multiply.outer(weight, w / w.sum())
    energy = (multiplicity(basis) * np.abs(v) ** 2).sum(axis=tuple(range(1, d + 1)))
    np.testing.assert_allclose(energy, (weight * u**2).sum(axis=tuple(range(1, d + 1))), rtol=10 * tolerance)
    # Amplitudes of an arbitrary array are synthesised by the same matrix, whatever no real field can have.
    v = rng.normal(size=v.shape) + (1j * rng.normal(size=v.shape) if np.iscomplexobj(v) else 0)
    direct = np.real(np.tensordot(v, matrix, axes=(range(1, d + 1), range(d, 2 * d))))
    np.testing.assert_allclose(to_points(array(v), basis), direct, atol=10 * tolerance)


@pytest.mark.parametrize(
    ("coarse", "fine"),
    [
        ((8,), (13,)),
        ((8, 9), (12, 8)),
        ((9, 8), (9, 11)),
        ((Sine(6),), (Sine(11),)),
        ((Cosine(6, "centres"),), (Cosine(9, "centres"),)),
        ((Sine(6, "centres"), 8), (Sine(9), 10)),
    ],
    ids=str,
)
def test_amplitudes_are_equal_on_every_grid(coarse, fine):
    on_coarse, on_fine = (smooth_amplitudes(basis, 3) for basis in (coarse, fine))
    in_coarse, in_fine = shared_index(coarse, fine)
    np.testing.assert_allclose(on_fine[in_fine], on_coarse[in_coarse], atol=1e-13)
    # And nothing is anywhere else.
    assert np.abs(on_fine).sum() == pytest.approx(np.abs(on_fine[in_fine]).sum())
    further = np.zeros(mode_shape(fine), on_coarse.dtype)
    further[in_fine] = on_coarse[in_coarse]
    np.testing.assert_allclose(to_points(further, fine), to_points(on_fine, fine), atol=1e-12)


@pytest.mark.parametrize(
    "basis", [(9,), (8, Sine(7)), (Cosine(7, "centres"), 8), (Sine(8), Cosine(6))], ids=str
)
def test_derivatives_change_the_basis_and_are_those_of_the_functions(basis):
    v, step = smooth_amplitudes(basis, 3), 1e-4
    d = len(basis)
    for axis in range(d):
        multiplier, other = derivative(basis, axis)
        x = [nodes(a) for a in basis]
        moved = lambda h, axis=axis, x=x: [x_i + h * (i == axis) for i, x_i in enumerate(x)]
        value = lambda x: np.real(np.tensordot(synthesis(basis, x), v, axes=d))
        central = (value(moved(step)) - value(moved(-step))) / (2 * step)
        np.testing.assert_allclose(to_points(multiplier * v, other), central, atol=1e-6)


def test_bases_refuse_what_does_not_fit():
    with pytest.raises(InputError, match=r"fields on \(8,\) points, but got the shape \(2, 7\)"):
        to_modes(np.zeros((2, 7)), (8,))
    with pytest.raises(InputError, match=r"amplitudes of shape \(5,\), but got \(2, 4\)"):
        to_points(np.zeros((2, 4), complex), (8,))
    with pytest.raises(InputError, match="at least 2 points, but got 1"):
        Sine(1)


def test_nothing_else_in_the_package_calls_an_fft():
    package = Path(sgno.__file__).parent
    # The exported PyTorch module stands alone; the solvers that make data know nothing of the models.
    others = [
        path
        for path in package.rglob("*.py")
        if not {package / "spectral", package / "lab" / "wild"} & set(path.parents)
        and path != package / "export" / "torch_step.py"
    ]
    for path in others:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.attr] if isinstance(node, ast.Attribute) else []
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
            assert not any("fft" in name for name in names), f"{path}:{getattr(node, 'lineno', 0)}"


@pytest.mark.parametrize(("points", "num_modes"), GRIDS)
@pytest.mark.parametrize("fft_from", [1, 1000], ids=["fft", "matrix"])
def test_retained_modes_are_those_of_the_dft(points, num_modes, fft_from, monkeypatch):
    monkeypatch.setattr(sgno.spectral.retained, "FFT_FROM_MODES", fft_from)
    v = np.random.default_rng(0).normal(size=(2, 3, *points))
    k = retained_modes(len(points), num_modes)
    x = np.stack(np.meshgrid(*(np.arange(n) / n for n in points), indexing="ij"))
    phase = np.exp(-2j * np.pi * np.tensordot(k, x, axes=(0, 0)))
    direct = np.tensordot(
        phase, v, axes=(tuple(range(len(points), 2 * len(points))), tuple(range(2, v.ndim)))
    )
    got = np.asarray(to_retained(jnp.asarray(v, jnp.float32), num_modes))
    np.testing.assert_allclose(
        got[..., 0, :, :] + 1j * got[..., 1, :, :], direct, atol=2e-6 * np.abs(direct).max()
    )


@pytest.mark.parametrize(("points", "num_modes"), GRIDS)
@pytest.mark.parametrize("fft_from", [1, 1000], ids=["fft", "matrix"])
def test_from_retained_is_the_real_part_of_the_one_sided_sum(points, num_modes, fft_from, monkeypatch):
    monkeypatch.setattr(sgno.spectral.retained, "FFT_FROM_MODES", fft_from)
    rng = np.random.default_rng(1)
    k = retained_modes(len(points), num_modes)
    c = rng.normal(size=(*k.shape[1:], 2, 3)) + 1j * rng.normal(size=(*k.shape[1:], 2, 3))
    x = np.stack(np.meshgrid(*(np.arange(n) / n for n in points), indexing="ij"))
    phase = np.exp(2j * np.pi * np.tensordot(k, x, axes=(0, 0)))
    weight = np.where(k[-1] == 0, 1, 2)[..., None, None]
    modes = tuple(range(len(points)))
    direct = np.tensordot(c * weight, phase, axes=(modes, modes)).real / np.prod(points)
    got = from_retained(jnp.asarray(np.stack([c.real, c.imag], axis=-3), jnp.float32), points)
    np.testing.assert_allclose(got, direct, atol=2e-6 * np.abs(direct).max())


def test_band_limited_fields_survive_the_round_trip():
    c = jax.random.normal(jax.random.PRNGKey(0), (8, 4, 2, 3, 2))
    # Mode -m of the first axis has no retained partner +m, so with k_2 = 0 no real field has it alone.
    c = c.at[4, 0].set(0)
    field = from_retained(c, (16, 16))
    np.testing.assert_allclose(from_retained(to_retained(field, 4), (16, 16)), field, atol=1e-5)


def test_radius_does_not_depend_on_the_sign_of_the_frequency():
    rho, k = radius(3, 6), retained_modes(3, 6)
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
    np.testing.assert_allclose(np.moveaxis(np.asarray(d_re), -1, 0), np.real(exact), atol=2e-4)
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
