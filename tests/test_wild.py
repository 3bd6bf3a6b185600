"""The data of the wild suite: solvers against closed forms, orders and conservation laws; rows by seed."""

import dataclasses

import numpy as np
import pytest

from sgno.errors import InputError
from sgno.lab import wild
from sgno.lab.wild.coupled import ConservedShallowWater, Schroedinger, ShallowWater, Wave
from sgno.lab.wild.periodic import (
    Burgers,
    Interval,
    KortewegDeVries,
    KuramotoSivashinsky,
    VaryingAdvection,
    VaryingDiffusion,
)
from sgno.lab.wild.plane import NavierStokes, Staggered, WalledPlaneReaction, runge_kutta
from sgno.lab.wild.solvers import Dense, Diagonal, imex, random_fields
from sgno.lab.wild.walls import Walled, WalledBurgers, WalledHeat


def slope_of(errors):
    """The order at which errors fall when the step is halved."""
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


@pytest.mark.parametrize("linear", [Diagonal(-3.0), Dense(np.array([[-3.0]]))])
def test_imex_has_order_four(linear):
    # y' = -3 y + cos t by its closed form.
    exact = lambda t: (3 * np.cos(t) + np.sin(t) - 3 * np.exp(-3 * t)) / 10 + 0.5 * np.exp(-3 * t)
    force = lambda y, step, theta: np.full_like(y, np.cos(step + theta))
    y0 = np.full((1, 1), exact(0))
    errors = [
        abs(imex(linear, force, y0, dt=1.0, steps=2, substeps=n)[-1, 0, 0] - exact(2)) for n in (4, 8, 16)
    ]
    assert np.all(np.abs(slope_of(errors) - 4) < 0.5)


def cole_hopf(nu, t, x):
    """A solution of Burgers' equation, zero at multiples of pi."""
    return 2 * nu * np.exp(-nu * t) * np.sin(x) / (1.5 + np.exp(-nu * t) * np.cos(x))


def test_imex_has_order_four_on_a_nonlinear_equation():
    errors = []
    for substeps in (2, 4, 8):
        box = Interval(2 * np.pi, 96, substeps=substeps)
        slope = lambda u, step, theta, box=box: -box.derivative(u**2) / 2
        u0 = cole_hopf(0.3, 0.0, box.x)[None, None]
        states = box.advance(0.3 * box.ik**2, slope, u0, dt=2.0, steps=1)
        errors.append(np.abs(states[0, -1, 0] - cole_hopf(0.3, 2.0, box.x)).max())
    assert np.all(slope_of(errors) > 3.3) and errors[-1] < 1e-5


def test_burgers_keeps_its_mass_and_loses_energy():
    states = Burgers().solve(np.random.default_rng(0), 4, 20).states
    assert np.abs(states.mean(axis=-1) - states[:, :1].mean(axis=-1)).max() < 1e-6
    assert np.all(np.diff((states**2).mean(axis=(-2, -1)), axis=1) < 0)


def test_a_soliton_of_kdv_moves_at_its_speed():
    system = KortewegDeVries(box=Interval(40.0, 256, substeps=16))
    x, speed = system.box.x, 1.5
    wave = lambda t: speed / 2 / np.cosh(np.sqrt(speed) / 2 * (x - 15 - speed * t)) ** 2
    states = system.advance(wave(0.0)[None, None], 60)
    assert np.abs(states[0, -1, 0] - wave(60 * system.dt)).max() < 1e-5


def test_small_waves_of_ks_grow_as_the_linear_equation_says():
    system = KuramotoSivashinsky()
    q = 2 * np.pi * 4 / system.box.length
    x = q / 4 * system.box.x
    states = system.advance(1e-7 * np.cos(4 * x)[None, None], 10)
    growth = np.exp((q**2 - q**4) * 10 * system.dt)
    np.testing.assert_allclose(states[0, -1, 0], 1e-7 * growth * np.cos(4 * x), atol=1e-12)


@pytest.mark.parametrize("system", [ShallowWater(), ConservedShallowWater()])
def test_shallow_water_keeps_its_mass(system):
    depth = system.solve(np.random.default_rng(0), 2, 10).states[:, :, 0]
    assert np.abs(depth.mean(axis=-1) - 1).max() < 1e-7 and depth.std() > 0.01


def test_the_two_forms_of_shallow_water_agree_without_viscosity():
    flat = ShallowWater(viscosity=0.0, amplitude=0.05)
    h, u = np.moveaxis(flat.solve(np.random.default_rng(0), 2, 10).states, 2, 0)
    # The same start as (h, hu): its slope in time by both forms.
    box, dt = Interval(2 * np.pi, 64, substeps=1), flat.dt
    q_t = (h * u)[:, 6] / (2 * dt) - (h * u)[:, 4] / (2 * dt)
    flux = (h * u**2 + h**2 / 2)[:, 5]
    assert np.abs(q_t + box.derivative(flux)).max() < 0.01 * np.abs(q_t).max()


def test_split_steps_keep_the_norm_and_have_order_four():
    # A plane wave a exp(i (k x - w t)) with w = k^2/2 - a^2.
    system = Schroedinger(dt=0.5)
    x = system.box.x
    wave = lambda t: 0.8 * np.exp(1j * (2 * x - (2 - 0.64) * t))
    np.testing.assert_allclose(system.advance(wave(0)[None], 2)[0, -1], wave(1.0), atol=1e-9)
    start = (0.5 + np.cos(x) + 0.5j * np.sin(2 * x))[None]
    solve = lambda n: dataclasses.replace(system, box=Interval(2 * np.pi, 128, substeps=n)).advance(start, 1)
    exact = solve(160)
    errors = [np.abs(solve(n) - exact).max() for n in (10, 20, 40)]
    assert np.all(np.abs(slope_of(errors) - 4) < 0.6)
    norms = (np.abs(exact) ** 2).mean(axis=-1)
    np.testing.assert_allclose(norms[:, 1], norms[:, 0], rtol=1e-12)


def test_waves_travel_and_sine_gordon_keeps_its_energy():
    system = Wave()
    x = system.box.x
    start = np.stack([np.exp(np.cos(x)), np.sin(x) * np.exp(np.cos(x))])[None]  # moves to the right
    states = system.advance(start, 10)
    np.testing.assert_allclose(states[0, -1, 0], np.exp(np.cos(x - 10 * system.dt)), atol=1e-7)
    sine = Wave("sine", amplitudes=(2.0, 0.3))
    states = sine.advance(sine.box.fields(np.random.default_rng(0), 2, 2, modes=2), 20)
    u, v = states[:, :, 0], states[:, :, 1]
    energy = (v**2 / 2 + sine.box.derivative(u) ** 2 / 2 + 1 - np.cos(u)).mean(axis=-1)
    np.testing.assert_allclose(energy, energy[:, :1] * np.ones(21), rtol=1e-6)


def test_varying_advection_carries_values_along_characteristics():
    # u_t = -a u_x keeps the range of u and the mean of u/a; D-diffusion keeps the mean and shrinks the range.
    system = VaryingAdvection("random", given=True)
    solution = system.solve(np.random.default_rng(0), 3, 10)
    weighted = (solution.states[:, :, 0] / solution.inputs["a"][:, None]).mean(axis=-1)
    np.testing.assert_allclose(weighted, weighted[:, :1] * np.ones(11), atol=1e-4)
    states = VaryingDiffusion().solve(np.random.default_rng(0), 3, 10).states
    np.testing.assert_allclose(
        states.mean(axis=-1), states[:, :1].mean(axis=-1) * np.ones((1, 11, 1)), atol=1e-7
    )
    assert np.all(np.diff(states.max(axis=-1), axis=1) < 0)


def test_inputs_drive_the_mean_and_viscosities_differ():
    # The mean of u feels nothing but the force, which is constant during a step.
    controlled = Burgers(force="c").solve(np.random.default_rng(0), 3, 6)
    means = controlled.states.mean(axis=(-2, -1))
    np.testing.assert_allclose(np.diff(means, axis=1), 0.05 * controlled.inputs["c"][:, :-1], atol=1e-6)
    forced = Burgers(force="f").solve(np.random.default_rng(0), 3, 6)
    assert forced.inputs["f"].shape == (3, 7, 64)
    family = Burgers(viscosities=(0.08, 0.25)).solve(np.random.default_rng(0), 2, 4)
    alone = Burgers(viscosity=family.inputs["nu"][1]).solve(np.random.default_rng(0), 2, 4)
    np.testing.assert_allclose(family.states[1], alone.states[1], atol=1e-10)
    box = Interval(2 * np.pi, 256, substeps=16)
    mixed = Burgers(dts=(0.05, 0.1), box=box).solve(np.random.default_rng(1), 6, 2)
    fine = Burgers(dt=0.05, box=box).solve(np.random.default_rng(1), 6, 4)
    assert mixed.dt is not None and len(set(mixed.dt)) == 2
    for sample, dt in enumerate(mixed.dt):
        np.testing.assert_allclose(mixed.states[sample, 1], fine.states[sample, round(dt / 0.05)], atol=1e-6)


def test_heat_between_walls_has_its_closed_form_and_steady_state():
    system = WalledHeat()
    x, box = system.box.x, system.box
    wave = lambda x, t: x + np.exp(-system.diffusivity * (3 * np.pi) ** 2 * t) * np.sin(3 * np.pi * x)
    states = box.advance(system.diffusivity, np.zeros_like, wave(x, 0)[None, None], dt=system.dt, steps=20)
    np.testing.assert_allclose(states[0, -1, 0], wave(box.observed, 20 * system.dt), atol=1e-7)
    late = box.advance(1.0, np.zeros_like, wave(x, 0)[None, None], dt=3.0, steps=1)
    np.testing.assert_allclose(late[0, -1, 0], box.observed, atol=1e-4)


def test_burgers_between_walls_has_its_closed_form():
    box = Walled(np.pi, 40, 20, "dirichlet")
    D = box.derivative().T
    u0 = cole_hopf(0.3, 0.0, box.x)[None, None]
    states = box.advance(0.3, lambda u: -u * (u @ D), u0, dt=0.5, steps=4)
    np.testing.assert_allclose(states[0, -1, 0], cole_hopf(0.3, 2.0, box.observed), atol=1e-6)
    data = WalledBurgers().solve(np.random.default_rng(0), 2, 2).states
    assert np.abs(data[..., [0, -1]]).max() < 1e-12


def test_no_flux_keeps_what_diffuses():
    box = Walled(2.0, 32, 8, "neumann", nodes="cells")
    mode = lambda x, t: 1 + np.exp(-0.1 * np.pi**2 * t) * np.cos(np.pi * x)
    states = box.advance(0.1, np.zeros_like, mode(box.x, 0)[None, None], dt=0.5, steps=4)
    np.testing.assert_allclose(states[0, -1, 0], mode(box.observed, 2.0), atol=1e-7)


def test_fourth_order_laplacian_between_walls():
    errors = []
    for n in (16, 32, 64):
        box = dataclasses.replace(WalledPlaneReaction().box, fine_points=(n, n))
        system = WalledPlaneReaction(box=box)
        x, y = 2 * np.pi / n * np.arange(n)[:, None], np.pi / n * (np.arange(n) + 0.5)
        u = np.cos(2 * x) * np.cos(3 * y)
        errors.append(np.abs(system.laplacian(u) + 13 * u).max())
    assert np.all(np.abs(slope_of(errors) - 4) < 0.3)


def taylor_green(n, t, nu=0.1):
    """u on x-faces and v on y-faces of a decaying array of vortices, an exact solution."""
    face, centre = 2 * np.pi / n * np.arange(n), 2 * np.pi / n * (np.arange(n) + 0.5)
    decay = np.exp(-2 * nu * t)
    u = np.sin(face)[:, None] * np.cos(centre) * decay
    return u, -np.cos(centre)[:, None] * np.sin(face) * decay


def test_the_projection_method_has_order_two():
    errors = []
    for n in (16, 32, 64):
        flow = Staggered((2 * np.pi / n, 2 * np.pi / n), 0.1, walls=False)
        slope = lambda s, flow=flow: np.stack(flow.project(*flow.momentum(s[:, 0], s[:, 1])), 1)
        states = runge_kutta(slope, np.stack(taylor_green(n, 0.0))[None], dt=1.0, steps=1, substeps=n // 2)
        errors.append(np.abs(states[0, -1] - np.stack(taylor_green(n, 1.0))).max())
    assert np.all(np.abs(slope_of(errors) - 2) < 0.3)


@pytest.mark.parametrize("walls", [False, True])
def test_projected_flow_has_no_divergence_and_projects_to_itself(walls):
    rng = np.random.default_rng(0)
    u, v = rng.standard_normal((2, 3, 16, 8))
    if walls:
        v[..., 0] = 0
    flow = Staggered((0.1, 0.2), 0.01, walls)
    once = flow.project(u, v)
    assert np.abs(flow.divergence(*once)).max() < 1e-12
    np.testing.assert_allclose(flow.project(*once), once, atol=1e-12)


def test_vorticity_keeps_its_mean():
    small = dataclasses.replace(NavierStokes().box, fine_points=(32, 32), points=(32, 32))
    states = NavierStokes(box=small).solve(np.random.default_rng(0), 2, 3).states
    assert states.shape == (2, 4, 1, 32, 32) and np.abs(states.mean(axis=(-2, -1))).max() < 1e-12
    assert np.all(np.diff((states**2).mean(axis=(2, 3, 4)), axis=1) < 0)


def test_a_finer_grid_samples_the_same_random_fields():
    coarse, fine = (
        random_fields(np.random.default_rng(3), (2, 1), (n, n), modes=3, std=0.5) for n in (16, 32)
    )
    np.testing.assert_allclose(fine[..., ::2, ::2], coarse, atol=1e-12)
    np.testing.assert_allclose(fine.std(axis=(-2, -1)), 0.5)


def test_data_depend_on_the_seed_alone(tmp_path):
    task = dataclasses.replace(
        wild.get("burgers"), train_samples=3, train_steps=4, test_samples=2, test_steps=5
    )
    data = task.data(cache=tmp_path / "a")
    assert data.train.shape == (3, 5, 1, 64) and data.test.shape == (2, 6, 1, 64)
    assert data.train.dtype == np.float32
    again = task.data(cache=tmp_path / "b")
    np.testing.assert_array_equal(data.train, again.train)
    np.testing.assert_array_equal(data.test, again.test)
    other = dataclasses.replace(task, train_seed=1).data(cache=tmp_path / "a")
    assert np.abs(other.train - data.train).max() > 0.1
    np.testing.assert_array_equal(data.test, other.test)


def test_noise_is_as_strong_as_it_says_and_only_in_training(tmp_path):
    task = dataclasses.replace(wild.get("burgers-noise5"), test_samples=2, test_steps=5)
    clean = dataclasses.replace(task, noise=0.0).data(cache=tmp_path)
    noisy, other = (task.data(noise_seed=seed, cache=tmp_path) for seed in (0, 1))
    noise = noisy.train - clean.train
    assert abs(noise.std() / clean.train.std() - 0.05) < 0.001
    assert np.abs(noisy.train - other.train).max() > 0
    np.testing.assert_array_equal(noisy.test, clean.test)


def test_frames_left_out_are_those_of_the_finer_row(tmp_path):
    few = {
        "system": KuramotoSivashinsky(warm_up=1.0),
        "train_samples": 2,
        "train_steps": 2,
        "test_samples": 1,
        "test_steps": 2,
    }
    whole = dataclasses.replace(wild.get("ks"), **{**few, "train_steps": 4}).data(cache=tmp_path)
    half = dataclasses.replace(wild.get("ks-every2"), **few).data(cache=tmp_path)
    np.testing.assert_array_equal(half.train, whole.train[:, ::2])
    assert half.train_dt == 2 * whole.train_dt


def test_an_unknown_row_names_the_nearest():
    with pytest.raises(InputError, match=r"Did you mean burgers-noise5\?"):
        wild.get("burgers-nois5")


def test_equations_are_told_as_terms():
    equation = wild.get("kdv").equation
    assert str(equation) == "u_t = -6 u u_x -1 u_xxx"
    assert [term.coefficient for term in equation.terms["u"]] == [-6.0, -1.0]
    assert equation.terms["u"][1].factors == (wild.Factor("u", (3, 0, 0)),)
    for task in wild.WILD.values():
        assert set(task.system.channels) <= set(task.equation.terms)
        assert len(task.system.boundary) == len(task.system.length)
        for terms in task.equation.terms.values():
            for factor in (factor for term in terms for factor in term.factors):
                assert wild.Factor.parse(str(factor)) == factor
