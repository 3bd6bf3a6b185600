"""Certificates: closed forms, constants that no pair of states exceeds, bounds that no rollout exceeds."""

import dataclasses
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
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
from sgno.solve.certificates.bounds import GELU_SLOPE, GELU_SPREAD, spectral_norm
from sgno.solve.certificates.certificate import inside
from sgno.solve.certificates.evidence import ROUNDINGS, Evidence, finite_horizon, l2, local_lipschitz
from sgno.solve.certificates.sgno import SGNOConstants
from sgno.solve.certificates.sgno_x import SGNOXConstants
from sgno.solve.certificates.words import found, guaranteed
from sgno.step import batch, prepare
from sgno.weights import load, save

# Interval arithmetic; mpmath's operators are made at run time, unseen by a type checker.
iv: Any = mpmath.iv
KEY = jax.random.PRNGKey(0)
GRID = Grid(1, (16,))
SMALL = SGNOConfig(3, 4, 2)
X = SGNOXConfig(start="random", max_terms=2, stages=2, inner_steps=2)


def built(config, grid=GRID, seed=0, scale=1.0):
    step = config.build(grid, key=jax.random.PRNGKey(seed))
    return jax.tree.map(lambda leaf: scale * leaf if eqx.is_inexact_array(leaf) else leaf, step)


def lively(seed=0, channels=1, **settings) -> Any:
    """An SGNO-X whose closure really acts: products of strength one in a trapping set of radius about one."""
    step = dataclasses.replace(X, **settings).build(Grid(channels, (16,)), key=jax.random.PRNGKey(seed))
    if step.coupling is not None:
        K = jax.random.normal(KEY, step.coupling.w.real.shape)
        step = eqx.tree_at(lambda s: s.coupling.w.real, step, K)
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
def climbed(ready, u, v, climbs):
    """Pairs after gradient ascent on log(|f(u) - f(v)| / |u - v|), moved in proportion to their distance."""

    def ratio(pair):
        apart = l2(batch(ready, pair[0]) - batch(ready, pair[1]))
        return jnp.sum(jnp.log(apart + 1e-30) - jnp.log(l2(pair[0] - pair[1]) + 1e-30))

    def climb(_, pair):
        slopes = jax.grad(ratio)(pair)
        reach = 0.2 * l2(pair[0] - pair[1])
        each = lambda norms: norms.reshape(-1, *(1,) * (u.ndim - 1))
        return jax.tree.map(lambda x, g: x + each(reach) * g / (each(l2(g)) + 1e-12), pair, slopes)

    return jax.lax.fori_loop(0, climbs, climb, (u, v))


def pairs(ready, count, seed, climbs, shape=GRID.shape):
    """Random pairs, near and far, small and large, and the same after climbing the ratio."""
    rng = np.random.default_rng(seed)
    sizes = lambda low, high: 10.0 ** rng.uniform(low, high, (count, *(1,) * len(shape)))
    u = jnp.asarray(rng.normal(size=(count, *shape)) * sizes(-2, 1), jnp.float32)
    v = u + jnp.asarray(rng.normal(size=(count, *shape)) * sizes(-3, 1), jnp.float32)
    a, b = climbed(ready, u, v, jnp.asarray(climbs))
    return jnp.concatenate([u, a]), jnp.concatenate([v, b])


@pytest.fixture(scope="module")
def seeds():
    """Two seeds of a small SGNO and their certificates."""
    steps = [built(SMALL, seed=s, scale=2.0) for s in range(2)]
    return steps, [certify(step, GRID.points) for step in steps]


@pytest.fixture(scope="module")
def x():
    """An SGNO-X and its certificate."""
    step = lively()
    return step, certify(step, GRID.points)


def test_the_slope_of_gelu_is_its_largest():
    """gelu'' = phi(x) (2 - x²) vanishes at +-sqrt(2) alone, where the slope is largest and smallest."""
    with mpmath.workdps(50):
        slope = lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x)
        top, bottom = slope(mpmath.sqrt(2)), slope(-mpmath.sqrt(2))
        assert top <= GELU_SLOPE < top + mpmath.mpf("1e-8")
        assert abs(top + bottom - 1) < mpmath.mpf("1e-45")
        assert max(top - 0.5, 0.5 - bottom) <= GELU_SPREAD


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


def norm_in_interval(matrix):
    """An interval that holds the spectral norm of a matrix of float32 numbers, at most 1e-20 wide.

    Forty digits, and the residual bound |A| >= sqrt(lambda), lambda an eigenvalue of A^H A.
    """
    with mpmath.workdps(40):
        A = mpmath.matrix(np.asarray(matrix).tolist())
        top = max(mpmath.svd_c(A, compute_uv=False))
    slack = mpmath.mpf("1e-20")
    return iv.mpf([top - slack, top + slack])


def test_the_constant_of_sgno_exceeds_its_value_in_interval_arithmetic(seeds):
    """The paper's formula with norms in forty digits and sums and products of intervals."""
    step, certificate = seeds[0][0], seeds[1][0]
    constants, ready = certificate.constants, prepared(step)
    assert isinstance(constants, SGNOConstants)
    slope = iv.mpf(GELU_SLOPE)
    product = iv.mpf(1)
    layers = unstack(ready.layers)
    for i, (layer, known) in enumerate(zip(layers, constants.layers, strict=True)):
        width = layer.weight.shape[1]
        B, W1 = np.split(np.asarray(layer.weight), [width])
        carry = np.asarray(layer.carry).reshape(-1, width)
        through = [norm_in_interval(B + np.diag(c)) for c in carry.astype(np.float64)]
        linear = max(x.b for x in [norm_in_interval(B), *through])
        real = np.asarray(layer.coupling, np.float64).reshape(-1, 2 * width, 2 * width)
        coupling = max(norm_in_interval(G[:width, :width] + 1j * G[width:, :width]).b for G in real)
        correction = slope * norm_in_interval(W1) * norm_in_interval(layer.second_weight)
        assert linear <= known.linear and coupling <= known.coupling and known.carry <= 1
        # Both matrices have norm one, and the mixer at most one under a budget below two.
        assert known.correction <= correction.b <= GELU_SLOPE * (1 + 1e-5) and known.coupling < 2
        direct = (slope if i < len(layers) - 1 else 1) * (linear + coupling * known.correction)
        assert direct.a <= known.lipschitz <= direct.b * (1 + 2e-5)
        product *= direct
    head = slope * norm_in_interval(ready.head.first.weight) * norm_in_interval(ready.head.second.weight)
    lift = norm_in_interval(ready.lift.weight[:, :1])
    assert constants.head <= head.b * (1 + 2e-5)
    whole = 1 + iv.mpf(constants.head) * product * lift
    assert whole.a <= certificate.step <= whole.b * (1 + 1e-4)


def test_the_constant_of_sgno_x_exceeds_its_value_in_interval_arithmetic(x):
    """N and the two stages again, every operation on intervals of the stored numbers."""
    step, certificate = x
    scheme = prepared(step).prepared
    exact = lambda array: np.vectorize(lambda z: iv.mpf(float(z)), otypes=[object])(np.asarray(array))
    modulus = lambda z: np.vectorize(iv.sqrt, otypes=[object])(exact(z.real) ** 2 + exact(z.imag) ** 2)
    top = lambda values: iv.mpf([max(v.a for v in values.ravel()), max(v.b for v in values.ravel())])
    m = exact([1, *[2] * 7, 1])
    D, P, r = modulus(scheme.w.D), modulus(scheme.w.P), exact(scheme.w.r)
    reach = [sum(m * D[a] * r[scheme.terms.channels[a]], start=iv.mpf(0)) for a in range(len(D))]
    slopes = [top(D[a]) * reach[b] + top(D[b]) * reach[a] for a, b in scheme.terms.products]

    def N(coefficient):
        each = (top(modulus(coefficient * scheme.w.P[0, j])) * s for j, s in enumerate(slopes))
        return sum(each, start=iv.mpf(0))

    assert len(P[0]) == len(slopes) == 2
    a = top(modulus(scheme.decay)) + N(scheme.first[0])
    inner = a + N((scheme.w.T * scheme.last)[0]) * (a + 1)
    assert inner.a**2 <= certificate.step <= inner.b**2 * (1 + 1e-4)
    R = iv.sqrt(sum(m * r[0] ** 2, start=iv.mpf(0)))
    assert R.b <= certificate.ball <= R.b * (1 + 2e-4)


KINDS = {
    "sgno": lambda: built(SMALL, seed=0, scale=2.0),
    "unconstrained": lambda: built(dataclasses.replace(SMALL, generator="unconstrained"), scale=2.0),
    "residual": lambda: built(dataclasses.replace(SMALL, update="residual"), scale=3.0),
    "pointwise": lambda: built(dataclasses.replace(SMALL, update="pointwise"), scale=3.0),
    "no correction": lambda: built(dataclasses.replace(SMALL, correction="none"), scale=3.0),
    "sgno-x": lambda: lively(),
    "sgno-x, one stage": lambda: lively(second_stage=False),
    "sgno-x, four stages": lambda: lively(stages=4),
    "sgno-x, coupled channels": lambda: lively(channels=2),
    "linear": lambda: scattered(LinearConfig().build(Grid(2, (16,)))),
    "own units": lambda: Normalised(built(SMALL, Grid(2, (16,)), scale=2.0), (0.3, -1.0), (8.0, 0.5)),
}


def scattered(step):
    """A linear step with random matrices."""
    M = jax.random.normal(KEY, (2, *step.M_real.shape))
    return eqx.tree_at(lambda s: (s.M_real, s.M_imag), step, (M[0], M[1]))


@pytest.mark.parametrize("kind", KINDS)
def test_no_pair_of_states_exceeds_the_certified_constant(kind):
    """Random pairs, and the same after gradient ascent on the ratio, for every kind of model."""
    step: Any = KINDS[kind]()
    certificate = certify(step, step.grid.points)
    model, *_ = inside(step)
    ready = prepared(model)
    u, v = pairs(ready, 50, 1, 20, step.grid.shape)
    apart, near = (np.asarray(l2(x), np.float64) for x in (advanced(ready, u) - advanced(ready, v), u - v))
    sizes = np.asarray(l2(u) + l2(v), np.float64)
    # Pairs nearer than their rounding say nothing.
    far = near > 0.01 * sizes
    assert far.sum() > 20 and np.all(apart[far] <= certificate.step * near[far] * (1 + 1e-5))
    assert apart[far].max() > 0
    if np.isfinite(certificate.ball):
        assert float(l2(advanced(ready, 1e30 * u)).max()) <= certificate.ball


def test_float32_stays_within_the_rounding_that_the_horizon_allows(seeds, x):
    for step in (seeds[0][0], x[0]):
        ready, u = prepared(step), 3 * jax.random.normal(KEY, (200, *GRID.shape))
        rounded = np.asarray(advanced(ready, u), np.float64)
        with jax.enable_x64(True):
            wide = jax.tree.map(widened, ready)
            exact = np.asarray(advanced(wide, jnp.asarray(np.asarray(u), jnp.float64)))
        difference = np.sqrt(np.mean((rounded - exact) ** 2, axis=(1, 2)))
        assert np.all(difference <= ROUNDINGS * 2.0**-24 * np.asarray(l2(u)))
        assert difference.max() > 1e-9


def widened(leaf):
    """A float32 coefficient as the float64 number it is."""
    if not eqx.is_inexact_array(leaf):
        return leaf
    return jnp.asarray(np.asarray(leaf), jnp.complex128 if jnp.iscomplexobj(leaf) else jnp.float64)


def test_what_is_useful_comes_first(x):
    step, certificate = x
    constants = certificate.constants
    assert isinstance(constants, SGNOXConstants) and constants.products == 2 and constants.closure > 0
    assert certificate.ball == pytest.approx(float(step.trapping.rms_bound()[0]), rel=2e-4)
    first, second = guaranteed(certificate)
    assert "R =" in first and second.startswith("Not guaranteed: that errors stay small")


def test_bounds_move_with_the_units(x):
    step, inner = x
    units = Normalised(step, (-2.0,), (5.0,))
    fitted = certify(units, GRID.points)
    assert fitted.step == inner.step and inner.radius is not None and inner.sup is not None
    assert fitted.radius == (pytest.approx(5 * inner.radius[0] + 2, rel=1e-4),)
    assert fitted.sup == (pytest.approx(5 * inner.sup[0] + 2, rel=1e-4),)
    after = advanced(prepared(units), 1e9 * jax.random.normal(KEY, (9, 1, 16)))
    assert fitted.sup and float(jnp.abs(after).max()) <= fitted.sup[0]
    assert json.loads(json.dumps(fitted.to_json()))["scale"] == [5.0]


def test_without_a_trapping_set_products_have_no_constant():
    step = dataclasses.replace(X, trapping=False).build(GRID, key=KEY)
    step = eqx.tree_at(lambda s: s.P.real, step, jnp.ones_like(step.P.real))
    certificate = certify(step, GRID.points)
    assert math.isinf(certificate.step) and math.isinf(certificate.ball)
    assert certificate.to_json()["step"] is None
    assert all(line.startswith("Not guaranteed") for line in guaranteed(certificate))


def test_a_linear_step_is_called_so_at_once():
    none = SGNOXConfig(start="random", closure="none", forcing=False).build(GRID, key=KEY)
    for step in (none, scattered(LinearConfig().build(Grid(2, (16,))))):
        certificate = certify(step, GRID.points)
        assert certificate.linear
        assert guaranteed(certificate)[0].startswith("This is a linear map: it has no products")
    assert certify(none, GRID.points).step <= 1.0001


POISON = {
    "infinite": lambda s: eqx.tree_at(lambda s: s.gain.real, s, s.gain.real.at[0, 3].set(jnp.inf)),
    "not a number": lambda s: eqx.tree_at(lambda s: s.P.real, s, s.P.real.at[0, 0, 1].set(jnp.nan)),
    "too large": lambda s: eqx.tree_at(lambda s: s.P.imag, s, s.P.imag.at[0, 0, 1].set(1e30)),
    "a wide set": lambda s: eqx.tree_at(
        lambda s: s.trapping.exponent, s, jnp.full_like(s.trapping.exponent, 256)
    ),
}


@pytest.mark.parametrize("how", POISON)
def test_poisoned_weights_are_refused(how, tmp_path):
    step = POISON[how](lively())
    save(tmp_path / "a.safetensors", step)
    with pytest.raises(InputError, match="cannot be used: it"):
        load(tmp_path / "a.safetensors")
    assert isinstance(load(tmp_path / "a.safetensors", finite=False), type(step))
    for inner in (step, Normalised(step, (0.0,), (2.0,))):
        with pytest.raises(InputError, match="There is no certificate: it"):
            certify(inner, GRID.points)


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


def test_only_a_known_kind_is_certified():
    with pytest.raises(InputError, match="has no certificate"):
        certify(lambda u: u, GRID.points)


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
    first, second = (gather_evidence(s, c, reference) for s, c in zip(steps, certificates, strict=True))
    assert first.holds and second.holds
    # The first step made the data: its one-step error is the noise that was added.
    assert first.delta == pytest.approx(1e-3, rel=0.8) and second.delta > 10 * first.delta
    assert first.error[0] <= first.delta and len(first.error) == reference.shape[1] - 1
    assert first.local <= certificates[0].step
    content = json.loads(json.dumps(first.to_json(), allow_nan=False))
    assert content["certified_bound_holds"] is True and set(content["horizons"]) == {
        "measured",
        "certified",
        "indicated",
    }
    assert "Measured: the error stays within 10%" in found(certificates[0], first)[0]


def test_a_violated_bound_is_called_so():
    curve = np.asarray([1.0, 2.0])
    crossed = Evidence(1.0, np.full(2, 15.0), 1.0, curve, np.log10([1.0, 1.4]), np.log10([1.0, 3.0]))
    assert not crossed.holds and crossed.indication_holds_until == 2
    assert crossed.horizons == {"measured": 1, "certified": 2, "indicated": 1}


def test_the_command_prints_draws_and_answers_in_json(tmp_path, cache, seeds):
    steps, paths = seeds[0], []
    for i, step in enumerate(steps):
        paths.append(str(tmp_path / f"{i}.safetensors"))
        save(tmp_path / f"{i}.safetensors", step, {"job": [{}, {"job": 3}][i]})
    np.save(tmp_path / "data.npy", rolled(steps[0]))
    run = lambda *arguments: CliRunner().invoke(app, ["certify", *map(str, arguments)])
    done = run(*paths, "--data", tmp_path / "data.npy", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout.strip().splitlines()[-1])["certificates"]
    assert first["step"] > 1 and first["evidence"]["certified_bound_holds"]
    assert [path.endswith(("png", "svg")) for path in second["figures"]] == [True, True]
    assert (tmp_path / "out").is_dir() and len(list((tmp_path / "out").iterdir())) == 4
    assert "Not guaranteed: that a rollout stays bounded" in done.output and "Indication only" in done.output
    np.save(tmp_path / "two.npy", np.zeros((1, 3, 2, 16), np.float32))
    for arguments, message in (
        ([paths[0], "--samples", "0"], "must be at least 1"),
        ([paths[0], "--task", "recorded"], "do not say what they were trained on"),
        ([paths[0], "--data", tmp_path / "two.npy"], "Give data of the same channels"),
        ([tmp_path / "none.safetensors"], "neither a file"),
    ):
        wrong = run(*arguments)
        assert wrong.exit_code == 2 and message in " ".join(wrong.output.split())
