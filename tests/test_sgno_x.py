"""SGNO-X: what its form guarantees, what its start recovers, and what its scheme is."""

import dataclasses
import json

import equinox as eqx
import exponax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import enable_x64

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.identify import start_from_data, warm_start
from sgno.identify.pairs import split
from sgno.registry import config_from_json
from sgno.sgno_x import SGNOX, Multipliers, ResolvedSGNOXConfig, Scheme, SGNOXConfig, TrappingSet
from sgno.sgno_x.closure import Terms
from sgno.sgno_x.multipliers import Growth, Rates
from sgno.sgno_x.symbols import symbol
from sgno.sgno_x.trapping import enter, project
from sgno.solve.explain import explain
from sgno.spectral import mode_shape, phi3, to_modes, to_points, wavenumbers
from sgno.step import batch, count_parameters, prepare, trainable

KEY = jax.random.key(0)
N = 32


def smooth(
    key, channels: int = 1, points: tuple[int, ...] = (N,), modes: int = 4, samples: int = 1
) -> np.ndarray:
    """Random fields of the lowest modes, of root mean square one."""
    noise = jax.random.normal(key, (samples, channels, *points))
    keep = np.all(np.abs(wavenumbers(points)) <= modes, axis=0)
    u = np.asarray(to_points(to_modes(noise, points) * keep, points))
    return u / np.sqrt((u**2).mean(axis=tuple(range(2, u.ndim)), keepdims=True))


def rollout(step, u: np.ndarray, steps: int) -> np.ndarray:
    """States `(samples, times, channels, *points)` from `(samples, channels, *points)`."""

    @eqx.filter_jit
    def run(step, u):
        ready = prepare(step)

        def advance(u, _):
            u = batch(ready, u)
            return u, u

        return jax.lax.scan(advance, u, None, length=steps)[1]

    later = np.asarray(run(step, jnp.asarray(u)))
    return np.moveaxis(np.concatenate([u[None], later]), 0, 1)


def true_multipliers(L: np.ndarray, P: np.ndarray, D: np.ndarray, dtype=jnp.complex64) -> Multipliers:
    """Given symbols as multipliers, without growth, forcing or trapping set."""
    real = jnp.zeros((), dtype).real.dtype
    return Multipliers(
        Lambda=jnp.asarray(L, dtype),
        m=jnp.zeros(L.shape, real),
        K=None,
        D=jnp.asarray(D, dtype),
        P=jnp.asarray(P, dtype),
        f=None,
        T=jnp.ones(L.shape, dtype),
        r=None,
    )


def step_of(w: Multipliers, terms: Terms, *, inner_steps: int = 1, stages: int = 2):
    """A step with these multipliers, as a plain function of one state."""
    scheme = Scheme(w, terms, (N,), inner_steps=inner_steps, stages=stages)
    return lambda u: to_points(scheme.advance(scheme.enter(u[None]), inner_steps), (N,))[0]


def burgers(dt: float, nu: float = 0.02, dispersion: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rates and contribution of u_t = nu u_xx - dispersion u_xxx - (u²/2)_x over a step of length dt."""
    ik = symbol("d0", (N,))
    return dt * (nu * ik**2 - dispersion * ik**3)[None], dt * (-0.5 * ik)[None, None]


def burgers_step(
    dt: float, *, inner_steps: int = 1, stages: int = 2, dispersion: float = 0.0, dtype=jnp.complex64
):
    terms = Terms((("0:1", "0:1"),))
    L, P = burgers(dt, dispersion=dispersion)
    w = true_multipliers(L, P, terms.filters((N,), (9,)), dtype)
    return step_of(w, terms, inner_steps=inner_steps, stages=stages)


@pytest.fixture(scope="module")
def burgers_start() -> tuple[SGNOX, np.ndarray]:
    """A start from trajectories of a Burgers equation."""
    data = rollout(burgers_step(0.05), smooth(KEY, samples=12), 20)
    step = SGNOXConfig().build(Grid(1, (N,)), key=KEY)
    return warm_start(step, data, key=KEY), data


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e6, 1e30])
def test_damping_is_never_negative_and_growth_never_above_one(scale):
    rng = np.random.default_rng(0)

    def wild(x):
        return jnp.asarray(scale * rng.normal(size=x.shape), jnp.float32) if eqx.is_inexact_array(x) else x

    start = np.zeros((2, 9), complex)
    rates, growth = jax.tree.map(wild, (Rates(start, 1.0, real=False), Growth(start, 1.0)))
    Lambda, m = rates(), growth()
    assert np.all(np.real(Lambda) <= 0)
    assert np.all(np.abs(np.exp(np.asarray(Lambda, complex))) <= 1)
    assert np.all(m >= 0) and np.all(m <= 1)


def test_the_carry_is_nonexpansive():
    step = SGNOXConfig(closure="none", forcing=False).build(Grid(1, (N,)), key=KEY)
    wild = Rates(np.random.default_rng(1).normal(size=(1, 17)) + 3j, 1.0, real=False)
    step = eqx.tree_at(lambda s: (s.generator, s.trapping), step, (wild, None), is_leaf=lambda x: x is None)
    a, b = (jax.random.normal(key, (8, 1, N)) for key in jax.random.split(KEY))
    apart = jnp.linalg.norm((batch(step, a) - batch(step, b)).reshape(8, -1), axis=1)
    assert np.all(apart <= jnp.linalg.norm((a - b).reshape(8, -1), axis=1) * (1 + 1e-5))


def test_projection_is_the_identity_inside_lands_inside_and_is_nonexpansive():
    trap = TrappingSet(np.abs(np.random.default_rng(0).normal(size=(2, 17))), 2.0, (N,))
    r = trap.radius()
    a, b = (3 * r * jnp.exp(1j * x) * y for x, y in np.random.default_rng(2).normal(size=(2, 2, 50, 2, 17)))
    assert np.all(np.abs(project(a, r)) <= r * (1 + 1e-6))
    inside = a / 10 * jnp.minimum(1, 10 * r / jnp.abs(a))
    np.testing.assert_array_equal(project(inside, r), inside)
    moved = jnp.linalg.norm((project(a, r) - project(b, r)).reshape(50, -1), axis=1)
    assert np.all(moved <= jnp.linalg.norm((a - b).reshape(50, -1), axis=1) * (1 + 1e-6))
    broken = jnp.full((1, 2, 17), jnp.nan + 1j * jnp.inf)
    assert np.all(np.abs(project(broken, r)) <= r * (1 + 1e-6))
    assert np.all(np.isfinite(enter(jnp.array([[[jnp.nan, jnp.inf, -jnp.inf]]]), jnp.ones(1))))


def adversarial(points: tuple[int, ...]) -> SGNOX:
    """A step whose closure would blow up at once."""
    step = SGNOXConfig(start="random", stages=2, inner_steps=1).build(Grid(1, points), key=KEY)
    step = warm_start(step, smooth(KEY, points=points, modes=2, samples=3)[:, None].repeat(3, 1), key=KEY)
    return jax.tree.map(lambda x: 30 * jnp.ones_like(x) if eqx.is_inexact_array(x) else x, step)


@pytest.mark.parametrize("kind", ["normal", "extreme", "noise", "broken"])
def test_every_rollout_from_every_input_stays_in_the_trapping_set(kind):
    step = adversarial((8,))
    assert step.trapping is not None
    u = {
        "normal": smooth(KEY, points=(8,), modes=2, samples=4),
        "extreme": 1e30 * smooth(KEY, points=(8,), modes=2, samples=4),
        "noise": np.asarray(1e3 * jax.random.normal(KEY, (4, 1, 8))),
        "broken": np.array([[[np.nan, np.inf, -np.inf, 3e38, -3e38, 0, 1, 2]]], np.float32),
    }[kind]

    @eqx.filter_jit
    def worst(step, u):
        ready = prepare(step)

        def advance(carry, _):
            u, rms, top = carry
            u = batch(ready, u)
            return (
                u,
                jnp.maximum(rms, jnp.sqrt((u**2).mean(-1)).max()),
                jnp.maximum(top, jnp.abs(u).max()),
            ), None

        return jax.lax.scan(advance, (u, jnp.zeros(()), jnp.zeros(())), None, length=100_000)[0]

    last, rms, top = worst(step, jnp.asarray(u, jnp.float32))
    assert np.isfinite(last).all()
    assert 0 < rms <= step.trapping.rms_bound()[0] * (1 + 1e-4)
    assert top <= step.trapping.sup_bound()[0] * (1 + 1e-4)


def test_without_a_trapping_set_the_same_step_blows_up():
    step = eqx.tree_at(lambda s: s.trapping, adversarial((8,)), None, is_leaf=lambda x: x is None)
    assert not np.isfinite(rollout(step, smooth(KEY, points=(8,), modes=2), 50)).all()


def test_phi3_and_the_scheme_satisfy_their_order_conditions():
    z = np.array([0, 1e-4, -0.3 + 0.2j, 1j, -1.49, -1.51 + 0.1j, 3j, -40 + 5j])
    mean = np.exp(2j * np.pi * (np.arange(64) + 0.5) / 64)
    around = z[:, None] + mean
    exact = ((np.exp(around) - 1 - around - around**2 / 2) / around**3).mean(1)
    np.testing.assert_allclose(phi3(jnp.asarray(z, jnp.complex64)), exact, rtol=2e-5, atol=1e-7)
    nothing = true_multipliers(np.zeros((1, 17)), np.zeros((1, 0, 17)), np.zeros((0, 17)))
    scheme = Scheme(nothing, Terms(()), (N,), inner_steps=1, stages=4)
    np.testing.assert_allclose([scheme.middle[0, 0], scheme.last[0, 0]], [1 / 3, 1 / 6], rtol=1e-5)


def test_two_stages_with_the_true_symbols_are_etdrk2():
    """Burgers has a real generator, for which exponax's coefficients are right: the two must agree."""
    dt, nu = 0.05, 0.02
    reference = exponax.stepper.Burgers(1, 2 * np.pi, N, dt, diffusivity=nu, order=2, conservative=True)
    u = jnp.asarray(smooth(KEY)[0])
    np.testing.assert_allclose(burgers_step(dt)(u), reference(u), atol=2e-6)


@pytest.mark.parametrize(("stages", "order"), [(1, 1), (2, 2), (4, 4)])
@pytest.mark.parametrize("dispersion", [0.0, 0.01])
def test_order_of_accuracy(stages, order, dispersion):
    """Against many inner steps, for a real generator (Burgers) and a complex one (Korteweg-de Vries)."""
    with enable_x64(True):
        u = jnp.asarray(0.5 * smooth(KEY)[0], jnp.float64)

        def result(inner_steps, stages=stages):
            step = burgers_step(
                0.4, inner_steps=inner_steps, stages=stages, dispersion=dispersion, dtype=jnp.complex128
            )
            return np.asarray(jax.jit(step)(u))

        truth = result(512, stages=4)
        coarse, fine = (np.abs(result(s) - truth).max() for s in (16, 32))
    assert abs(np.log2(coarse / fine) - order) < 0.25


@pytest.mark.parametrize(("stages", "order"), [(1, 1), (2, 2), (4, 4)])
@pytest.mark.parametrize("turn", [0.0, 1.5])
def test_order_of_accuracy_against_a_dense_exponential(stages, order, turn):
    """Two coupled channels with a forcing, whose exact step is one exponential of a small matrix per mode:
    the scheme treats rates exactly and coupling and forcing as a closure. Damping alone, and with phases."""
    rng = np.random.default_rng(0)
    k = np.arange(17)
    L = np.stack([-0.1 * k, -0.4 - 0.05 * k]) + 1j * turn * np.stack([0.2 * k, np.cos(k)])
    coupling = np.array([[0, 1.0], [-0.7, 0]])
    f = rng.normal(size=(2, 17)) + 0j
    v = np.fft.rfft(rng.normal(size=(1, 2, N)), norm="forward")
    exact = np.zeros((2, 17), complex)
    for i in range(17):
        # The forcing is the state of a third, constant channel.
        A = np.zeros((3, 3), complex)
        A[:2, :2], A[:2, 2] = np.diag(L[:, i]) + coupling, f[:, i]
        values, vectors = np.linalg.eig(A)
        whole = vectors @ np.diag(np.exp(values)) @ np.linalg.inv(vectors)
        exact[:, i] = (whole @ np.array([*v[0, :, i], 1]))[:2]
    with enable_x64(True):
        w = dataclasses.replace(
            true_multipliers(L, np.zeros((2, 0, 17)), np.zeros((0, 17)), jnp.complex128),
            K=jnp.asarray(np.broadcast_to(coupling[..., None], (2, 2, 17)), jnp.complex128),
            f=jnp.asarray(f, jnp.complex128),
        )

        def error(inner_steps):
            scheme = Scheme(w, Terms(()), (N,), inner_steps=inner_steps, stages=stages)
            return np.abs(np.asarray(scheme.advance(jnp.asarray(v), inner_steps))[0] - exact).max()

        slope = np.log2(error(16) / error(32))
    assert abs(slope - order) < 0.2


def test_the_start_recovers_a_linear_equation_exactly(caplog):
    ik = symbol("d0", (N,))
    L = (-0.3 * ik + 0.01 * ik**2 + 0.002 * ik**3)[None]
    exact = step_of(true_multipliers(L, np.zeros((1, 0, 17)), np.zeros((0, 17))), Terms(()), stages=1)
    data = rollout(exact, smooth(KEY, samples=10), 15)
    with caplog.at_level("INFO", logger="sgno.identify.start"):
        found = start_from_data(SGNOXConfig().build(Grid(1, (N,)), key=KEY), data, key=KEY)
    step = found.step
    assert step.config.terms == () and not step.config.forcing
    assert found.no_products and "the step is linear" in caplog.text
    w = step.multipliers()
    np.testing.assert_allclose(np.asarray(w.Lambda + w.m)[0, 1:5], L[0, 1:5], atol=2e-6)
    u = smooth(jax.random.key(5), samples=3)
    np.testing.assert_allclose(rollout(step, u, 60), rollout(exact, u, 60), atol=5e-5)


def test_the_start_recovers_burgers(burgers_start):
    step, _ = burgers_start
    assert step.config.terms in ((("0:1", "0:1"),), (("0:1", "0:d0"),))
    assert not step.config.forcing
    u = smooth(jax.random.key(5), samples=3)
    np.testing.assert_allclose(rollout(step, u, 20), rollout(burgers_step(0.05), u, 20), atol=1e-4)


def test_without_forcing_the_step_commutes_with_translations(burgers_start):
    step, data = burgers_start
    u = jnp.asarray(data[0, 0])
    shifted = step(jnp.roll(u, 5, axis=-1))
    np.testing.assert_allclose(shifted, jnp.roll(step(u), 5, axis=-1), atol=2e-6)


def test_forcing_is_found_when_there_is_one():
    L, P = burgers(0.05)
    f = np.zeros((1, 17), complex)
    f[0, 2] = 0.02
    terms = Terms((("0:1", "0:1"),))
    w = true_multipliers(L, P, terms.filters((N,), (9,)))
    forced = step_of(dataclasses.replace(w, f=jnp.asarray(f, jnp.complex64)), terms)
    data = rollout(forced, smooth(KEY, samples=12), 20)
    step = warm_start(SGNOXConfig().build(Grid(1, (N,)), key=KEY), data, key=KEY)
    assert step.config.forcing
    found = explain(step, data[:, 0])
    assert found.forcing is not None and found.forcing_modes[0]["mode"] == [2]
    np.testing.assert_allclose(found.forcing_modes[0]["amplitude"], 0.02, rtol=1e-3)


def test_two_coupled_channels_and_a_cubic_term():
    """u_t = 0.02 u_xx + v - u v², v_t = 0.02 v_xx - u - u v²/2: linear coupling, and a product of three."""
    L, _ = burgers(0.1)
    terms = Terms((("0:1", "1:1", "1:1"),))
    P = np.zeros((2, 1, 17), complex)
    P[0, 0], P[1, 0] = -0.1, -0.05
    K = np.zeros((2, 2, 17), complex)
    K[0, 1], K[1, 0] = 0.1, -0.1
    w = true_multipliers(np.repeat(L, 2, axis=0), P, terms.filters((N,), (9,)))
    exact = step_of(dataclasses.replace(w, K=jnp.asarray(K, jnp.complex64)), terms)
    data = rollout(exact, smooth(KEY, channels=2, samples=16), 20)
    step = warm_start(SGNOXConfig().build(Grid(2, (N,)), key=KEY), data, key=KEY)
    assert ("0:1", "1:1", "1:1") in step.config.terms
    u = smooth(jax.random.key(5), channels=2, samples=3)
    np.testing.assert_allclose(rollout(step, u, 20), rollout(exact, u, 20), atol=2e-3)


def test_the_same_weights_run_on_finer_grids(burgers_start):
    step, _ = burgers_start
    coarse = 0.5 * smooth(jax.random.key(7), modes=3, samples=2)
    fine = np.asarray(
        to_points(_padded(np.asarray(to_modes(jnp.asarray(coarse), (N,))), 2 * N // 2 + 1), (2 * N,))
    )
    after_coarse, after_fine = rollout(step, coarse, 5)[:, -1], rollout(step, fine, 5)[:, -1]
    np.testing.assert_allclose(after_fine[..., ::2], after_coarse, atol=5e-3)
    with pytest.raises(InputError, match="number of axes"):
        step(jnp.zeros((1, 4, 4)))


def _padded(v: np.ndarray, modes: int) -> jnp.ndarray:
    return jnp.pad(jnp.asarray(v), ((0, 0), (0, 0), (0, modes - v.shape[-1])))


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "linear"},
        {"start": "random"},
        {"generator": "real"},
        {"closure": "none"},
        {"second_stage": False},
        {"trapping": False},
    ],
)
def test_ablations_are_settings_and_all_their_parameters_are_trained(settings, burgers_start):
    _, data = burgers_start
    config = SGNOXConfig(stages=2, inner_steps=1, **settings)
    step = warm_start(config.build(Grid(1, (N,)), key=KEY), data, key=KEY)
    # P starts at zero where the closure is drawn, which hides its filters from the first gradient.
    step = eqx.tree_at(lambda s: s.P.real, step, step.P.real + 0.01)
    params, rest = eqx.partition(step, trainable(step))

    def loss(params):
        ready = prepare(eqx.combine(params, rest))
        return jnp.mean((batch(ready, jnp.asarray(data[:, 0])) - data[:, 1]) ** 2)

    gradient = jax.jit(jax.grad(loss))(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), path
        assert np.any(leaf != 0) or leaf.size == 0, path


def test_what_the_data_filled_in_is_in_the_config(burgers_start):
    step, data = burgers_start
    config = SGNOXConfig(
        **{k: v for k, v in json.loads(json.dumps(step.config.to_json())).items() if k != "kind"}
    )
    assert isinstance(step.config, ResolvedSGNOXConfig) and not step.open_choices
    assert config.resolve(step.grid) == step.config
    like = eqx.filter_eval_shape(lambda: config.build(step.grid, key=jax.random.key(1)))
    shapes = lambda tree: [x.shape for x in jax.tree.leaves(tree) if hasattr(x, "shape")]
    assert shapes(like) == shapes(step)
    again = warm_start(config.build(step.grid, key=KEY), data, key=jax.random.key(9))
    np.testing.assert_allclose(again(jnp.asarray(data[0, 0])), step(jnp.asarray(data[0, 0])), atol=1e-6)


def test_parameters_are_counted_once_and_twice(burgers_start):
    step, _ = burgers_start
    factors, kept = len(step.terms.factors), 1 + step.config.cutoff[0]
    modes = int(np.prod(mode_shape((N,))))
    complex_numbers = 3 * modes + factors * kept  # Lambda, P, gain and the filters
    assert count_parameters(step) == (complex_numbers + modes, 2 * complex_numbers + modes)


def test_explain_names_the_equation(burgers_start):
    step, data = burgers_start
    found = explain(step, data[:, 0])
    assert found.terms[0].product in ("u * u", "u * d(u)/dx")
    assert found.terms[0].operator in ("-0.025 d/dx", "-0.05")
    np.testing.assert_allclose(found.curves[0].damping[1:5], 0.05 * 0.02 * np.arange(1, 5) ** 2, rtol=1e-2)
    assert "commutes with translations" in found.text
    json.dumps(found.to_json())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": 3}, "not one of"),
        ({"inner_steps": 0}, "at least 1"),
        ({"margin": 1.0}, "must exceed 1"),
        ({"degree": 4}, "2 or 3"),
        ({"max_terms": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        SGNOXConfig(**settings)


def test_settings_of_version_0_1_are_read_but_a_latent_carry_is_not_built():
    """Ids of stored jobs are hashes of this JSON."""
    stored = {
        "kind": "sgno-x", "start": "data", "generator": "complex", "carry": "state", "closure": "products",
        "degree": 3, "max_terms": None, "second_stage": True, "stages": None, "inner_steps": None,
        "forcing": None, "trapping": True, "margin": 4.0, "updates": "protocol", "terms": None,
        "cutoff": None,
    }  # fmt: skip
    assert SGNOXConfig().to_json() == stored
    latent = config_from_json({**stored, "carry": "latent"})
    assert latent.to_json()["carry"] == "latent"
    with pytest.raises(InputError, match="an ablation of version"):
        latent.build(Grid(1, (8,)), key=KEY)


def test_bad_data_is_refused():
    step = SGNOXConfig().build(Grid(1, (8,)), key=KEY)
    with pytest.raises(InputError, match="at least two times"):
        warm_start(step, np.zeros((2, 1, 1, 8), np.float32), key=KEY)
    with pytest.raises(InputError, match="finite"):
        warm_start(step, np.full((2, 3, 1, 8), np.nan, np.float32), key=KEY)
    with pytest.raises(InputError, match="does not fit"):
        SGNOXConfig(cutoff=(4,)).build(Grid(1, (8,)), key=KEY)


def test_a_choice_is_judged_on_states_that_were_not_fitted():
    trajectories = np.arange(10 * 6 * 8, dtype=np.float32).reshape(10, 6, 1, 8)
    pairs = split(trajectories)
    assert len(pairs.fit.now) and len(pairs.held_out.now)
    assert not np.isin(np.concatenate(pairs.held_out), np.concatenate(pairs.fit)).any()
