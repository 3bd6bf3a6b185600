"""Certificates: closed forms, constants that no pair of states exceeds, bounds that no rollout exceeds."""

import dataclasses
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import enable_x64
from scipy.special import erf
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.layer import unstack
from sgno.nn.linear import LinearConfig
from sgno.nn.normalised import Normalised
from sgno.nn.sgno import SGNOConfig
from sgno.sgno_x import SGNOXConfig
from sgno.solve.certificates import certify, gather_evidence
from sgno.solve.certificates.bounds import GELU_SLOPE, spectral_norm
from sgno.solve.certificates.evidence import Evidence
from sgno.solve.certificates.horizon import finite_horizon
from sgno.solve.certificates.local import l2, local_lipschitz
from sgno.solve.certificates.sgno import SGNOConstants
from sgno.solve.certificates.sgno_x import SGNOXConstants
from sgno.solve.certificates.words import guaranteed
from sgno.step import Step, batch, prepare
from sgno.weights import save

KEY = jax.random.PRNGKey(0)
GRID = Grid(1, (16,))
SMALL = SGNOConfig(3, 4, 2)
X = SGNOXConfig(start="random", max_terms=2, stages=2, inner_steps=2)


def built(config, grid=GRID, seed=0, scale=1.0):
    step = config.build(grid, key=jax.random.PRNGKey(seed))
    return jax.tree.map(lambda leaf: scale * leaf if eqx.is_inexact_array(leaf) else leaf, step)


def lively(seed=0) -> Step:
    """An SGNO-X whose closure really acts: products of strength one in a trapping set of radius about one."""
    step = X.build(GRID, key=jax.random.PRNGKey(seed))
    shape = step.P.real.shape
    P = 0.3 * jax.random.normal(jax.random.PRNGKey(seed + 1), (2, *shape))
    step = eqx.tree_at(lambda s: (s.P.real, s.P.imag), step, (P[0], P[1]))
    return eqx.tree_at(lambda s: s.trapping.exponent, step, jnp.full_like(step.trapping.exponent, -8))


@eqx.filter_jit
def prepared(step):
    return prepare(step)


@eqx.filter_jit
def advanced(ready, u):
    return batch(ready, u)


@eqx.filter_jit
@eqx.filter_grad
def slopes_of_the_ratio(pair, ready):
    u, v = pair
    return jnp.sum(jnp.log(l2(batch(ready, u) - batch(ready, v)) / l2(u - v)))


def pairs(ready, count, seed, climbs):
    """Random pairs, near and far, small and large, and the same after climbing the ratio."""
    rng = np.random.default_rng(seed)
    shape = (count, *GRID.shape)
    u = jnp.asarray(rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 1, (count, 1, 1)), jnp.float32)
    gap = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 1, (count, 1, 1))
    v = u + jnp.asarray(gap, jnp.float32)

    def moved(x, g):
        return x + 0.2 * l2(u - v)[:, None, None] * g / (l2(g)[:, None, None] + 1e-12)

    a, b = u, v
    for _ in range(climbs):
        slopes = slopes_of_the_ratio((a, b), ready)
        a, b = moved(a, slopes[0]), moved(b, slopes[1])
    return jnp.concatenate([u, a]), jnp.concatenate([v, b])


@pytest.fixture(scope="module")
def seeds():
    """Three seeds of a small SGNO and their certificates, computed together."""
    steps = [built(SMALL, seed=s, scale=2.0) for s in range(3)]
    return steps, certify(steps, GRID.points)


@pytest.fixture(scope="module")
def x():
    """An SGNO-X and its certificate."""
    step = lively()
    return step, certify([step], GRID.points)[0]


def test_the_slope_of_gelu_is_its_largest():
    x = np.linspace(-6, 6, 200_001)
    slope = 0.5 * (1 + erf(x / np.sqrt(2))) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    assert slope.max() <= GELU_SLOPE < slope.max() + 1e-7
    assert 1 - slope.min() <= GELU_SLOPE


def test_a_norm_is_never_too_small():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 7, 3)) + 1j * rng.normal(size=(5, 7, 3))
    true = max(np.sqrt(np.linalg.eigvalsh(a.conj().T @ a).max()) for a in A)
    assert true <= spectral_norm(A) <= true * (1 + 1e-9)
    assert spectral_norm(np.zeros((0, 3, 3))) == 0 and spectral_norm(np.full((1, 2, 2), np.nan)) == math.inf


@pytest.mark.parametrize(("L", "delta"), [(0.9, 0.1), (1.0, 0.3), (1.7, 1e-3)])
def test_the_horizon_is_the_papers_closed_form(L, delta):
    t = np.arange(1, 41)
    expected = t * delta if L == 1 else delta * (L**t - 1) / (L - 1)
    np.testing.assert_allclose(10 ** finite_horizon(L, delta, 40), expected, rtol=1e-10)


def test_the_horizon_survives_large_constants_and_stops_at_the_trapping_set():
    assert finite_horizon(1e5, 1.0, 200)[-1] == pytest.approx(5 * 199, rel=1e-3)
    capped = finite_horizon(1e5, 1.0, 200, size=1.0, ball=4.0)
    assert 10 ** capped[-1] == pytest.approx(5.0)


def test_constants_are_those_worked_out_by_hand(seeds):
    """Each seed of the batch against the equations, written again in plain numpy."""
    for step, certificate in zip(*seeds, strict=True):
        constants = certificate.constants
        assert isinstance(constants, SGNOConstants)
        norm = lambda w: np.linalg.norm(np.asarray(w, np.float64), 2)
        product = 1.0
        for layer, found in zip(unstack(step.layers), constants.layers, strict=True):
            lam = -(np.logaddexp(0, layer.generator.theta) + np.log1p(np.exp(profile(layer.generator))))
            r = 2 / (1 + np.exp(-profile(layer.budget)))
            A = np.moveaxis(np.asarray(layer.mixer.real) + 1j * np.asarray(layer.mixer.imag), 2, 0)
            mixer = min(1.0, np.linalg.norm(A, 2, axis=(1, 2)).max())
            assert found.carry == pytest.approx(np.exp(lam).max(), rel=1e-5) and found.carry <= 1
            assert found.phi1 == pytest.approx((np.expm1(lam) / lam).max(), rel=1e-5) and found.phi1 <= 1
            assert found.budget == pytest.approx(r.max(), rel=1e-5) and found.budget < 2
            assert found.mixer == pytest.approx(mixer, rel=1e-3) and found.mixer <= 1 + 1e-9
            assert found.local == pytest.approx(norm(layer.local.weight), rel=1e-6)
            # Both matrices of the correction have norm one, so its constant is at most that of gelu.
            assert found.correction <= GELU_SLOPE * (1 + 1e-6)
            bracket = found.local + 1 + found.budget * found.mixer * found.correction
            assert found.paper == pytest.approx(found.activation * bracket, rel=3e-5)
            assert found.sharp <= found.paper and found.linear <= found.local + found.carry
            product *= found.paper
        assert [layer.activation for layer in constants.layers] == [GELU_SLOPE, 1.0]
        assert constants.lift == pytest.approx(norm(step.lift.weight[:, :1]), rel=3e-5)
        head = norm(step.head.first.weight) * norm(step.head.second.weight)
        assert constants.head <= GELU_SLOPE * head * (1 + 1e-4)
        assert constants.paper == pytest.approx(1 + constants.head * product * constants.lift, rel=1e-4)


def profile(part):
    """level - softplus(slope) rho on the modes of the small SGNO in 1D, where rho = k / 3."""
    level, slope = (part.b, part.s) if hasattr(part, "b") else (part.a, part.t)
    return np.asarray(level)[:, None] - np.logaddexp(0, slope)[:, None] * np.arange(4) / 3


def assert_certified(step, certificate, seed, climbs=0):
    ready = prepared(step)
    u, v = pairs(ready, 200, seed, climbs)
    a, b = certificate.rounding
    apart = np.asarray(l2(advanced(ready, u) - advanced(ready, v)), np.float64)
    allowed = certificate.step * np.asarray(l2(u - v), np.float64) * (1 + 1e-5)
    assert np.all(apart <= allowed + a * np.asarray(l2(u) + l2(v)) + 2 * b)
    # The rounding term is not what makes it hold: far pairs stay below the constant alone.
    far = np.asarray(l2(u - v)) > 0.1 * np.asarray(l2(u))
    assert np.all(apart[far] <= allowed[far]) and apart[far].max() > 0


def test_no_pair_of_states_exceeds_the_certified_constant(seeds):
    steps, certificates = seeds
    assert_certified(steps[0], certificates[0], 1, climbs=5)


def test_an_ablation_without_constraints_is_certified_for_what_it_is():
    step = built(dataclasses.replace(SMALL, update="residual", coordinates="periodic"), scale=3.0)
    (certificate,) = certify([step], GRID.points)
    assert_certified(step, certificate, 2)


def test_float32_stays_within_its_certified_rounding(seeds, x):
    fitted = Normalised(seeds[0][0], (40.0,), (3.0,))
    for step, certificate in ((seeds[0][0], seeds[1][0]), x, (fitted, certify([fitted], GRID.points)[0])):
        a, b = certificate.rounding
        ready = prepared(step)
        u = 3 * jax.random.normal(KEY, (200, *GRID.shape))
        rounded = np.asarray(advanced(ready, u), np.float64)
        with enable_x64(True):
            wide = jax.tree.map(widened, ready)
            exact = np.asarray(advanced(wide, jnp.asarray(np.asarray(u), jnp.float64)))
        difference = np.sqrt(np.mean((rounded - exact) ** 2, axis=(1, 2)))
        assert np.all(difference <= a * np.asarray(l2(u)) + b)
        assert difference.max() > 1e-9


def widened(leaf):
    """A float32 coefficient as the float64 number it is."""
    if not eqx.is_inexact_array(leaf):
        return leaf
    return jnp.asarray(np.asarray(leaf), jnp.complex128 if jnp.iscomplexobj(leaf) else jnp.float64)


def test_sgno_x_is_certified_on_its_trapping_set(x):
    step, certificate = x
    constants = certificate.constants
    assert isinstance(constants, SGNOXConstants)
    assert constants.carry <= 1 and constants.closure > 0
    assert constants.step == pytest.approx(constants.inner**2, rel=1e-4)
    assert certificate.ball == pytest.approx(float(step.trapping.rms_bound()[0]), rel=1e-4)
    after = advanced(prepared(step), 1e30 * jax.random.normal(KEY, (200, *GRID.shape)))
    assert float(l2(after).max()) <= certificate.ball and bool(jnp.isfinite(after).all())
    assert_certified(step, certificate, 3)
    assert any("R =" in line for line in guaranteed(certificate))


def test_one_scale_cancels_and_bounds_move_with_the_units(x):
    step, inner = x
    (fitted,) = certify([Normalised(step, (-2.0,), (5.0,))], GRID.points)
    assert fitted.step == inner.step and inner.radius is not None and inner.sup is not None
    assert fitted.radius == (pytest.approx(5 * inner.radius[0] + 2, rel=1e-4),)
    assert fitted.sup == (pytest.approx(5 * inner.sup[0] + 2, rel=1e-4),)
    after = advanced(prepared(Normalised(step, (-2.0,), (5.0,))), 1e9 * jax.random.normal(KEY, (9, 1, 16)))
    assert float(l2(after).max()) <= fitted.ball
    assert_certified(Normalised(step, (-2.0,), (5.0,)), fitted, 4)


def test_scales_that_differ_enter_the_constant():
    step = built(SMALL, Grid(2, (16,)), scale=2.0)
    fitted = Normalised(step, (0.3, -1.0), (8.0, 0.5))
    (inner,), (outer,) = certify([step], (16,)), certify([fitted], (16,))
    assert outer.step == pytest.approx(1 + 16 * (inner.step - 1), rel=1e-4)
    rng = np.random.default_rng(5)
    u, v = (jnp.asarray(rng.normal(size=(200, 2, 16)), jnp.float32) for _ in range(2))
    ready = prepared(fitted)
    apart = np.asarray(l2(advanced(ready, u) - advanced(ready, v)) / l2(u - v))
    assert apart.max() <= outer.step
    assert any("largest scale of a channel" in line for line in guaranteed(outer))
    assert json.loads(json.dumps(outer.to_json()))["units"] == {"mean": [0.3, -1.0], "scale": [8.0, 0.5]}


def test_without_a_trapping_set_products_have_no_constant():
    step = dataclasses.replace(X, trapping=False).build(GRID, key=KEY)
    step = eqx.tree_at(lambda s: s.P.real, step, jnp.ones_like(step.P.real))
    (certificate,) = certify([step], GRID.points)
    assert math.isinf(certificate.step) and math.isinf(certificate.ball)
    assert certificate.to_json()["step"] is None
    assert all(line.startswith("Not guaranteed") for line in guaranteed(certificate))


def test_a_linear_sgno_x_does_not_stretch():
    step = SGNOXConfig(start="random", closure="none", forcing=False).build(GRID, key=KEY)
    (certificate,) = certify([step], GRID.points)
    assert certificate.step <= 1.0001


def test_the_local_estimate_is_a_singular_value_from_below(seeds):
    ready = prepared(seeds[0][0])
    u = jax.random.normal(KEY, GRID.shape)
    J = jax.jit(jax.jacrev(lambda u: ready(u)))(u).reshape(16, 16)
    largest = np.linalg.svd(np.asarray(J), compute_uv=False)[0]
    estimate = eqx.filter_jit(local_lipschitz)
    found = 0.0
    for iterations in (2, 2000):
        found = float(estimate(ready, u, jnp.asarray(iterations), key=KEY))
        assert found <= largest * (1 + 1e-5)
    assert found == pytest.approx(largest, rel=1e-3)


def test_only_steps_of_one_setting_and_a_known_kind_are_certified(seeds):
    assert len({certificate.step for certificate in seeds[1]}) == 3
    with pytest.raises(InputError, match="one setting at a time"):
        certify([seeds[0][0], built(dataclasses.replace(SMALL, width=4))], GRID.points)
    with pytest.raises(InputError, match="has no certificate"):
        certify([LinearConfig().build(GRID, key=KEY)], GRID.points)


def rolled(step, samples=3, times=12, seed=0):
    """Trajectories near those of the step: what it predicts, with a known small error a step."""
    rng = np.random.default_rng(seed)
    u = jnp.asarray(rng.normal(size=(samples, 1, 16)), jnp.float32)
    states, ready = [u], prepared(step)
    for _ in range(times - 1):
        states.append(advanced(ready, states[-1]) + 1e-3 * jnp.asarray(rng.normal(size=u.shape), jnp.float32))
    return np.asarray(jnp.stack(states, axis=1))


def test_measured_errors_stay_below_the_certified_bound(seeds):
    steps, certificates = seeds
    reference = rolled(steps[0])
    first, second, _ = gather_evidence(steps, certificates, reference)
    assert first.holds and second.holds
    # The first step made the data: its one-step error is the noise that was added.
    assert first.delta == pytest.approx(1e-3, rel=0.8) and second.delta > 10 * first.delta
    assert first.error[0] <= first.delta and len(first.error) == reference.shape[1] - 1
    assert first.local <= certificates[0].step
    content = json.loads(json.dumps(first.to_json(), allow_nan=False))
    assert content["certified_bound_holds"] is True


def test_a_violated_bound_is_called_so():
    curve = np.asarray([1.0, 2.0])
    crossed = Evidence(1.0, 1.0, 1.0, curve, np.log10([1.0, 1.5]), np.log10([1.0, 3.0]))
    assert not crossed.holds and crossed.indication_holds_until == 2


def test_the_command_prints_draws_and_answers_in_json(tmp_path, cache, seeds):
    steps, paths = seeds[0], []
    for i, step in enumerate(steps):
        paths.append(str(tmp_path / f"{i}.safetensors"))
        save(tmp_path / f"{i}.safetensors", step, {"job": {}})
    np.save(tmp_path / "data.npy", rolled(steps[0]))
    run = lambda *arguments: CliRunner().invoke(app, ["certify", *map(str, arguments)])
    done = run(*paths, "--data", tmp_path / "data.npy", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    first, second, _ = json.loads(done.stdout.strip().splitlines()[-1])["certificates"]
    assert first["step"] > 1 and first["evidence"]["certified_bound_holds"]
    assert [path.endswith(("png", "svg")) for path in second["figures"]] == [True, True]
    assert (tmp_path / "out").is_dir() and len(list((tmp_path / "out").iterdir())) == 6
    assert "certified constants" in " ".join(done.output.split()) and "Indication only" in done.output
    np.save(tmp_path / "two.npy", np.zeros((1, 3, 2, 16), np.float32))
    for arguments, message in (
        ([paths[0], "--samples", "0"], "must be at least 1"),
        ([paths[0], "--task", "recorded"], "do not say what they were trained on"),
        ([paths[0], "--data", tmp_path / "two.npy"], "Give data of the same channels"),
        ([tmp_path / "none.safetensors"], "neither a file"),
    ):
        wrong = run(*arguments)
        assert wrong.exit_code == 2 and message in " ".join(wrong.output.split())
