"""Finding the equation behind trajectories: the order of the scheme, its derivatives, recovery, intervals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_data import invoke

import sgno
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.identify.equation import (
    Equation,
    EquationStep,
    Factor,
    Term,
    candidates,
    discover,
    exponax_stepper,
    parse_terms,
    simulate,
)
from sgno.identify.equation.data import Data, noise_level
from sgno.identify.equation.flow import Box, Inputs, System, Tables, advance, exponentials
from sgno.identify.equation.shooting import Shooting
from sgno.identify.equation.weak import solve
from sgno.registry import get_model, with_settings
from sgno.spectral import to_modes, to_points


def term(target, outer, *factors):
    return Term(target, (outer,), tuple(Factor(field, (order,)) for field, order in factors))


SQUARE_X = term(0, 1, (0, 0), (0, 0))
BURGERS = {term(0, 0, (0, 2)): 0.2, SQUARE_X: -0.5}
KS = {term(0, 0, (0, 2)): -1.0, term(0, 0, (0, 4)): -1.0, SQUARE_X: -0.5}
FITZHUGH_NAGUMO = {
    term(0, 0, (0, 0)): 1.0,
    term(0, 0, (0, 2)): 0.05,
    term(0, 0, (1, 0)): -1.0,
    term(0, 0, (0, 0), (0, 0), (0, 0)): -1 / 3,
    term(1, 0): 0.056,
    term(1, 0, (0, 0)): 0.3,
    term(1, 0, (1, 0)): -0.2,
}


def smooth(rng, shape, points, modes=2, std=1.0):
    x = 2 * np.pi * np.arange(points) / points
    waves = [f(m * x) for m in range(1, modes + 1) for f in (np.cos, np.sin)]
    u = rng.normal(size=(*shape, len(waves))) @ np.stack(waves)
    return std * u / u.std(-1, keepdims=True)


def flow(equation, u0, *, dt, length, frames, substeps=8, inputs=None, samples=None):
    """Trajectories by the same terms with many inner steps: `(samples, frames, C, points)`."""
    box = Box(u0.shape[2:], (length,))
    known = Inputs({n: np.asarray(a, float)[:, None, None] for n, a in (inputs or {}).items()}, box)
    system = System(list(equation), box, u0.shape[1], known)
    c = np.array(list(equation.values()))
    samples = np.arange(len(u0))
    tables = Tables.make(system.generator(c, samples), np.full(len(u0), dt / substeps))
    v, out = to_modes(u0, box.points) * box.inner(), []
    for _ in range(frames):
        out.append(to_points(v, box.points))
        v, _ = advance(system, c, tables, v, samples=samples, frame=0 * samples, substeps=substeps)
    return np.stack(out, 1)


def burgers(rng, samples=8, frames=25, points=32, dt=0.1):
    u0 = smooth(rng, (samples, 1), 2 * points)
    fine = flow(BURGERS, u0, dt=dt, length=2 * np.pi, frames=frames, substeps=16)
    return fine[..., ::2].astype(np.float32)


def found(discovery):
    return dict(zip(discovery.equation.terms, discovery.equation.coefficients, strict=True))


def test_phi_functions_of_matrices_satisfy_their_recurrence():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(5, 3, 3)) + 1j * rng.normal(size=(5, 3, 3))
    z[0] *= 1e-6
    z[1] *= 30
    whole, p1, p2, p3 = exponentials(z)
    values, vectors = np.linalg.eig(z)
    by_eigenvalues = vectors @ (np.exp(values)[..., None] * np.linalg.inv(vectors))
    np.testing.assert_allclose(whole, by_eigenvalues, rtol=1e-8, atol=1e-9 * np.abs(whole).max())
    eye = np.eye(3)
    for higher, lower, at_zero in ((p1, whole, 1), (p2, p1, 1), (p3, p2, 1 / 2)):
        np.testing.assert_allclose(z @ higher + at_zero * eye, lower, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("equation", "channels", "length"), [(BURGERS, 1, 2 * np.pi), (FITZHUGH_NAGUMO, 2, 20.0)]
)
def test_scheme_is_of_fourth_order(equation, channels, length):
    u0 = smooth(np.random.default_rng(1), (2, channels), 32)
    run = lambda n: flow(equation, u0, dt=0.4, length=length, frames=2, substeps=n)[:, -1]
    exact = run(64)
    errors = [np.abs(run(n) - exact).max() for n in (2, 4, 8)]
    assert 3.5 < np.log2(errors[1] / errors[2]) < 4.8


def test_tangents_are_the_derivatives_of_the_flow():
    box = Box((16,), (2 * np.pi,))
    rng = np.random.default_rng(2)
    inputs = Inputs({"a": rng.normal(size=(1, 1, 16))}, box)
    equation = {**BURGERS, term(0, 0, ("a", 0), (0, 1)): 0.3}
    system = System(list(equation), box, 1, inputs)
    c = np.array(list(equation.values()))
    at = np.zeros(1, int)

    # A linear coefficient's tangent is integrated as a forcing, which agrees with the scheme's derivative to
    # its order: the step is short.
    def run(v, coefficients, **options):
        tables = Tables.make(system.generator(coefficients, at), np.array([0.0125]))
        return advance(system, coefficients, tables, v, samples=at, frame=at, substeps=4, **options)

    v = to_modes(smooth(rng, (1, 1), 16), box.points) * box.inner()
    d = to_modes(smooth(rng, (1, 1), 16), box.points) * box.inner()
    start = np.concatenate([d[:, None], np.zeros((1, 3, 1, 9))], 1).astype(np.complex64)
    tangents = run(v, c, tangents=start, which=[0, 1, 2])[1]
    assert tangents is not None
    eps = 1e-5
    expected = (run(v + eps * d, c)[0] - run(v - eps * d, c)[0]) / (2 * eps)
    np.testing.assert_allclose(tangents[:, 0], expected, atol=1e-5)
    for j in range(3):
        step = eps * np.eye(3)[j]
        expected = (run(v, c + step)[0] - run(v, c - step)[0]) / (2 * eps)
        np.testing.assert_allclose(tangents[:, 1 + j], expected, atol=3e-5)


@pytest.mark.parametrize("level", [0.01, 0.2])
def test_noise_level_is_estimated_from_the_data(level):
    rng = np.random.default_rng(3)
    u = burgers(rng)
    noisy = u + level * rng.normal(size=u.shape)
    box = Box((32,), (1.0,))
    assert noise_level(to_modes(noisy, box.points), box)[0] == pytest.approx(level, rel=0.1)


def test_library_has_no_two_equal_terms():
    """The terms as functions of random states are linearly independent."""
    terms = [t for t in candidates(2, 1, parameters=["p"], fields=["a"]) if t.target == 0]
    rng = np.random.default_rng(4)
    box = Box((64,), (5.0,))
    arrays = {"p": rng.normal(size=(60, 1, 1)), "a": smooth(rng, (60, 1), 64, modes=8)}
    system = System(terms, box, 2, Inputs(arrays, box))
    v = to_modes(smooth(rng, (60, 2), 64, modes=8), box.points)
    at = np.arange(60)
    x = system.features(v, at, 0 * at, 0.0, range(len(terms))).transpose(1, 0, 2).reshape(len(terms), -1)
    x = np.concatenate([np.real(x), np.imag(x)], 1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.linalg.svd(x, compute_uv=False)[-1] > 1e-6


def test_clean_data_give_the_equation_and_no_other_term():
    discovery = discover(burgers(np.random.default_rng(5)), dt=0.1, length=2 * np.pi)
    assert discovery.found and set(found(discovery)) == set(BURGERS)
    for t, value in BURGERS.items():
        assert found(discovery)[t] == pytest.approx(value, rel=1e-4)
    assert str(discovery.equation) == "u_t = +0.2 u_xx -1 u u_x"
    assert "u_{xx}" in discovery.equation.latex() or "\\partial_x^{2} u" in discovery.equation.latex()
    assert "Derivative(u(t, x), (x, 2))" in discovery.equation.sympy()[0]


@pytest.mark.parametrize("level", [0.02, 0.1])
def test_noisy_data_give_the_terms_with_intervals_that_hold(level):
    rng = np.random.default_rng(6)
    u = burgers(rng)
    discovery = discover(u + level * u.std() * rng.normal(size=u.shape), dt=0.1, length=2 * np.pi)
    assert discovery.found and set(found(discovery)) == set(BURGERS)
    for t, error in zip(discovery.equation.terms, discovery.equation.standard_errors, strict=True):
        assert abs(found(discovery)[t] - BURGERS[t]) < 4 * error
        assert error < level * abs(BURGERS[t])
    assert discovery.noise[0] == pytest.approx(level * u.std(), rel=0.1)


def test_intervals_cover_the_truth():
    """Of 20 intervals at 95 % (10 draws of the noise, two coefficients) at least 15 contain it."""
    rng = np.random.default_rng(7)
    u = burgers(rng, samples=3, frames=10, points=24)
    inside = 0
    for _ in range(10):
        noisy = u + 0.05 * rng.normal(size=u.shape)
        discovery = discover(noisy, dt=0.1, length=2 * np.pi, only=list(BURGERS))
        for (low, high), value in zip(discovery.intervals(), BURGERS.values(), strict=True):
            inside += low < value < high
    assert inside >= 15


def test_a_term_that_vanishes_on_the_data_has_the_coefficient_zero():
    x = np.array([[1.0, 0.0, 2.0], [3.0, 0.0, -1.0], [0.5, 0.0, 1.0]])
    assert solve(x.T @ x, x.T @ (x @ [2, 5, -1]), range(3)) == pytest.approx([2, 0, -1])
    assert not solve(np.full((2, 2), np.inf), np.ones(2), range(2)).any()


def test_coupled_channels():
    rng = np.random.default_rng(8)
    u = flow(FITZHUGH_NAGUMO, smooth(rng, (8, 2), 32), dt=0.2, length=20.0, frames=31)
    discovery = discover(u.astype(np.float32), dt=0.2, length=20.0, channels=("u", "w"))
    assert set(found(discovery)) == set(FITZHUGH_NAGUMO)
    for t, value in FITZHUGH_NAGUMO.items():
        assert found(discovery)[t] == pytest.approx(value, rel=1e-3)


def test_a_parameter_that_differs_by_trajectory():
    rng = np.random.default_rng(9)
    nu = rng.uniform(0.08, 0.2, 8)
    family = {SQUARE_X: -0.5, term(0, 0, ("nu", 0), (0, 2)): 1.0}
    u = flow(family, smooth(rng, (8, 1), 32), dt=0.1, length=2 * np.pi, frames=25, inputs={"nu": nu})
    discovery = discover(u, dt=0.1, length=2 * np.pi, inputs={"nu": nu})
    assert set(found(discovery)) == set(family)
    step = EquationStep(discovery.equation, (32,), dt=0.1, inputs={"nu": nu[3]})
    states = jnp.asarray(u[3, 0], jnp.float32)
    for _ in range(10):
        states = step(states)
    np.testing.assert_allclose(states, u[3, 10], atol=2e-5)
    other = step.bind(nu=nu[5])(jnp.asarray(u[5, 0], jnp.float32))
    np.testing.assert_allclose(other, u[5, 1], atol=2e-5)


def test_trajectories_that_differ_in_dt_and_in_frames():
    rng = np.random.default_rng(10)
    dts = [0.1, 0.05, 0.1, 0.1, 0.05, 0.1]
    pieces = [
        flow(BURGERS, smooth(rng, (1, 1), 32), dt=dt, length=2 * np.pi, frames=20 + 10 * (i % 2))[0]
        for i, dt in enumerate(dts)
    ]
    discovery = discover(pieces, dt=np.array(dts), length=2 * np.pi)
    assert set(found(discovery)) == set(BURGERS)


def test_step_runs_at_any_dt_on_any_grid():
    equation = Equation(tuple(BURGERS), tuple(BURGERS.values()), ("u",), (2 * np.pi,), 0.01)
    start = smooth(np.random.default_rng(11), (1, 1), 64, std=0.5)
    fine = flow(BURGERS, start, dt=0.2, length=2 * np.pi, frames=2, substeps=64)[0]
    with jax.enable_x64(True):
        for every, dt in ((1, 0.2), (1, 0.1), (2, 0.05)):
            step = EquationStep(equation, (64 // every,), dt=dt)
            u = jnp.asarray(fine[0, :, ::every])
            for _ in range(round(0.2 / dt)):
                u = step(u)
            np.testing.assert_allclose(u, fine[1, :, ::every], atol=1e-4 if every > 1 else 1e-6)


def test_the_equation_is_a_model_that_saves_and_loads(tmp_path):
    u = burgers(np.random.default_rng(14))
    config = with_settings(get_model("equation", 1), {"dt": "0.1", "length": 2 * np.pi})
    fresh = config.build(Grid(1, (32,)), key=jax.random.PRNGKey(0))
    start = jnp.asarray(u[0, 0])
    np.testing.assert_allclose(fresh(start), start, atol=1e-6)
    step = sgno.warm_start(fresh, u[1:], key=jax.random.PRNGKey(0))
    assert step.config.found and set(step.equation.terms) == set(BURGERS)
    sgno.save(tmp_path / "step", step)
    loaded = sgno.load(tmp_path / "step")
    assert loaded.config == step.config and sgno.count_parameters(loaded) == (2, 2)
    states = sgno.rollout(loaded, start, 20)
    np.testing.assert_allclose(np.asarray(states)[-1], u[0, 20], atol=2e-5)
    half = loaded.at(0.05)
    # The data are every second point of a finer grid, so their Nyquist mode is not that of the equation.
    np.testing.assert_allclose(half(half(start)), loaded(start), atol=2e-6)


def test_a_model_without_an_equation_says_so_and_what_it_is(caplog):
    u = np.cumsum(np.random.default_rng(15).normal(size=(4, 12, 1, 16)), axis=1)
    fresh = get_model("equation", 1).build(Grid(1, (16,)), key=jax.random.PRNGKey(0))
    step = sgno.warm_start(fresh, u, key=jax.random.PRNGKey(0))
    (message,) = caplog.messages
    assert not step.config.found and "No equation was found" in message
    assert ("persistence" in message.split(".")[0]) == (not step.equation.terms)


def test_terms_are_read_as_people_write_them():
    zero = (0,)
    assert parse_terms("u_xx, (u^2)_x, u u_x, nu u, 1", "u", 1, ["nu"]) == [
        term(0, 0, (0, 2)),
        SQUARE_X,
        term(0, 0, (0, 0), (0, 1)),
        Term(0, zero, (Factor("nu", zero), Factor(0, zero))),
        term(0, 0),
    ]
    assert parse_terms("w: u_xxx; u: w", ("u", "w"), 1) == [term(1, 0, (0, 3)), term(0, 0, (1, 0))]
    for text, message in (("v_x", "'v'"), ("u_y", "factor"), ("u^-1", "factor"), ("(u", "no term")):
        with pytest.raises(InputError, match=message):
            parse_terms(text, "u", 1)
    with pytest.raises(InputError, match="whose"):
        parse_terms("u_x", ("u", "w"), 1)


def test_the_command_prints_the_equation_and_writes_a_step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("u.npz", u=burgers(np.random.default_rng(16)), time=np.full(8, 0.1))
    words = ("discover", "u.npz", "--dt", "time", "--length", str(2 * np.pi), "--out", "step")
    found = json.loads(invoke(*words, "--only", "u_xx, u u_x", "--json").stdout)
    assert found["found"] and found["equation"] == ["u_t = +0.2 u_xx -1 u u_x"]
    low, high = found["terms"][1]["interval"]
    assert low < -1 < high and found["terms"][1]["term"] == "u u_x"
    assert sgno.load("step").equation.coefficients[0] == pytest.approx(0.2)
    assert invoke("discover", "u.npz", "--length", "a").exit_code == 2
    assert "exists" in invoke(*words).stderr


def test_the_stepper_of_exponax_is_the_same_step():
    pytest.importorskip("exponax")
    equation = Equation(
        tuple(FITZHUGH_NAGUMO), tuple(FITZHUGH_NAGUMO.values()), ("u", "w"), (20.0,), max_step=0.02
    )
    u = jnp.asarray(smooth(np.random.default_rng(17), (1, 2), 32)[0], jnp.float32)
    ours = EquationStep(equation, (32,), dt=0.1)(u)
    np.testing.assert_allclose(exponax_stepper(equation, 32, dt=0.1)(u), ours, atol=2e-6)


def test_a_forecast_of_many_is_that_of_the_step():
    u0 = smooth(np.random.default_rng(18), (2, 1), 32)
    equation = Equation(tuple(BURGERS), tuple(BURGERS.values()), ("u",), (2 * np.pi,), max_step=0.02)
    states = simulate(equation, u0, steps=3, dt=np.array([0.1, 0.05]))
    for u, dt in zip(states, (0.1, 0.05), strict=True):
        rolled = sgno.rollout(EquationStep(equation, (32,), dt=dt), jnp.asarray(u[0], jnp.float32), 3)
        np.testing.assert_allclose(u[1:], rolled, atol=3e-6)


def test_a_coefficient_that_varies_in_space_is_learned():
    rng = np.random.default_rng(19)
    x = 2 * np.pi * np.arange(32) / 32
    a = 1 + 0.3 * np.cos(x) - 0.2 * np.sin(2 * x)
    varying = {term(0, 0, ("a", 0), (0, 1)): -1.0}
    box = Box((32,), (2 * np.pi,))
    u0 = smooth(rng, (6, 1), 32)
    truth = Equation(tuple(varying), (-1.0,), ("u",), box.lengths, max_step=0.02)
    u = simulate(truth, u0, steps=14, dt=0.1, inputs={"a": a})
    discovery = discover(u, dt=0.1, length=2 * np.pi)
    (field,) = discovery.equation.fields
    np.testing.assert_allclose(field.values(32), -a, atol=1e-4)
    assert discovery.found and str(discovery.equation) == "u_t = +1 a u_x" and not discovery.equation.inputs
    again = simulate(discovery.equation, u0, steps=5, dt=0.1)
    np.testing.assert_allclose(again, u[:, :6], atol=1e-4)
    rolled = sgno.rollout(EquationStep(discovery.equation, (32,), dt=0.1), jnp.asarray(u0[0], jnp.float32), 5)
    np.testing.assert_allclose(rolled, again[0, 1:], atol=1e-5)


def test_a_mean_that_never_moves_is_a_conserved_quantity():
    rng = np.random.default_rng(20)
    u0 = smooth(rng, (6, 1), 32)
    slopes = term(0, 0, (0, 1), (0, 1))
    terms = {term(0, 0, (0, 2)): 0.2, slopes: -0.5}
    truth = Equation(
        tuple(terms), tuple(terms.values()), ("u",), (2 * np.pi,), max_step=0.02, conserves_mean=True
    )
    u = simulate(truth, u0, steps=20, dt=0.1)
    discovery = discover(u, dt=0.1, length=2 * np.pi)
    assert set(found(discovery)) == set(terms) and discovery.equation.conserves_mean
    assert "minus its mean" in str(discovery.equation)
    step = EquationStep(discovery.equation, (32,), dt=0.1)
    # The inner steps of the data are 0.02 long.
    np.testing.assert_allclose(step(jnp.asarray(u[0, 0], jnp.float32)), u[0, 1], atol=1e-5)


def test_data_of_noise_alone_are_not_explained():
    rng = np.random.default_rng(12)
    u = np.cumsum(rng.normal(size=(6, 20, 1, 32)), axis=1)
    assert not discover(u, dt=0.1, length=1.0).found


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((4, 2, 1, 16), {}, "2 frames"),
        ((4, 20, 16), {"length": 1.0}, "channels"),
        ((4, 20, 1, 16), {"length": (1.0, 2.0)}, "does not fit"),
        ((4, 20, 1, 16), {"dt": -0.1}, "dt has the shape"),
        ((4, 20, 1, 16), {"inputs": {"nu": np.zeros(5)}}, "Input 'nu' has the shape"),
    ],
)
def test_bad_input_is_refused_in_one_line(shape, options, message):
    with pytest.raises(InputError, match=message) as error:
        discover(np.ones(shape), **{"dt": 0.1, "length": 1.0, **options})
    assert "\n" not in str(error.value)


def test_shooting_takes_the_states_found_by_shorter_windows():
    u = burgers(np.random.default_rng(13), samples=2, frames=13)
    box = Box((32,), (2 * np.pi,))
    data = Data.make(
        u + 0.05 * np.random.default_rng(0).normal(size=u.shape), np.full((2, 12), 0.1), box, Inputs({}, box)
    )
    short = Shooting(data, list(BURGERS), window=4)
    short.refine(np.array(list(BURGERS.values())), iterations=1)
    long = Shooting(data, list(BURGERS), window=12)
    long.take_states(short)
    np.testing.assert_array_equal(long.states, short.states[short.start == 0])
