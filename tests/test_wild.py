"""The data of the wild suite: solvers against closed forms, orders and conservation laws; rows by seed."""

import dataclasses

import numpy as np
import pytest

from sgno.errors import InputError
from sgno.lab import wild
from sgno.lab.wild.periodic import Burgers, KortewegDeVries, KuramotoSivashinsky, Spectrum, solve_spectral
from sgno.lab.wild.solvers import Dense, Diagonal, imex, random_fields


def slope(errors):
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
    assert np.all(np.abs(slope(errors) - 4) < 0.5)


def test_imex_has_order_four_on_a_nonlinear_equation():
    # u_t = -u u_x + nu u_xx by the Cole-Hopf transform of 2 + cos x exp(-nu t).
    nu, spectrum = 0.3, Spectrum(64, 2 * np.pi)
    x = 2 * np.pi * np.arange(64) / 64
    exact = lambda t: 2 * nu * np.exp(-nu * t) * np.sin(x) / (1.5 + np.exp(-nu * t) * np.cos(x))
    advection = lambda u, step, theta: -spectrum.ik / 2 * np.fft.rfft(u**2)
    solve = lambda n: solve_spectral(
        spectrum, nu * spectrum.ik**2, advection, exact(0)[None, None], dt=2.0, steps=1, substeps=n
    )
    errors = [np.abs(solve(n)[0, -1, 0] - exact(2.0)).max() for n in (2, 4, 8)]
    assert np.all(slope(errors) > 3.3) and errors[-1] < 1e-5


def test_burgers_keeps_its_mass_and_loses_energy():
    states = Burgers().solve(np.random.default_rng(0), 4, 20).states
    assert np.abs(states.mean(axis=-1) - states[:, :1].mean(axis=-1)).max() < 1e-6
    assert np.all(np.diff((states**2).mean(axis=(-2, -1)), axis=1) < 0)


def test_a_soliton_of_kdv_moves_at_its_speed():
    system = KortewegDeVries(length=(40.0,), fine_points=256, points=256)
    x = system.length[0] * np.arange(256) / 256
    speed = 1.5
    wave = lambda t: speed / 2 / np.cosh(np.sqrt(speed) / 2 * (x - 15 - speed * t)) ** 2
    states = system.advance(wave(0.0)[None, None], 60)
    assert np.abs(states[0, -1, 0] - wave(60 * system.dt)).max() < 1e-5


def test_small_waves_of_ks_grow_as_the_linear_equation_says():
    system = KuramotoSivashinsky()
    x = 2 * np.pi * np.arange(system.fine_points) / system.fine_points
    states = system.advance(1e-7 * np.cos(4 * x)[None, None], 10)
    q = 2 * np.pi * 4 / system.length[0]
    growth = np.exp((q**2 - q**4) * 10 * system.dt)
    np.testing.assert_allclose(states[0, -1, 0], 1e-7 * growth * np.cos(4 * x), atol=1e-12)


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
