"""What is done with a user's trajectories before training: parts, units, warnings, sizes."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_data import TINY, burgers

import sgno
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.source import Source, array_source
from sgno.io.split import Split
from sgno.io.survey import choose_units, survey
from sgno.nn.normalised import NormalisedConfig
from sgno.registry import config_from_json, get_model
from sgno.step import batch, prepare
from sgno.weights import load, save


@pytest.fixture(scope="module")
def u() -> np.ndarray:
    return burgers(12, 12)


def test_parts_are_disjoint_seeded_and_complete(u):
    source = array_source(u)
    parts = Split(0.2, 3, seed=1)(source)
    assert parts.validation is not None
    read = [part.read() for part in parts]  # pyright: ignore[reportOptionalMemberAccess]
    assert [len(part) for part in read] == [7, 2, 3]
    rows = {part[i].tobytes() for part in read for i in range(len(part))}
    assert rows == {trajectory.tobytes() for trajectory in u}
    np.testing.assert_array_equal(Split(0.2, 3, seed=1)(source).test.read(), read[2])
    assert not np.array_equal(Split(0.2, 3, seed=2)(source).test.read(), read[2])
    sample, time = parts.test.origin(1, 3)
    np.testing.assert_array_equal(u[sample, time], read[2][1, 3])
    two = Split()(array_source(u[:2]))
    assert two.validation is None and two.train.shape[0] == two.test.shape[0] == 1


def test_a_single_trajectory_is_cut_in_time(u):
    one = u[:1]
    parts = Split(0.2, 0.3)(array_source(one))
    assert parts.validation is not None
    assert [parts.train.shape[1], parts.validation.shape[1], parts.test.shape[1]] == [7, 3, 4]
    np.testing.assert_array_equal(parts.train.read()[:, -1], parts.validation.read()[:, 0])
    np.testing.assert_array_equal(parts.test.read()[0], one[0, -4:])


def test_moments_and_units(u):
    v = np.concatenate([5 + 3 * u, np.full_like(u, 7)], axis=2)
    moments = survey(array_source(v)).moments
    assert moments.mean[0] == pytest.approx(v[:, :-1, 0].mean(), rel=1e-5)
    assert moments.std[0] == pytest.approx(v[:, :-1, 0].std(), rel=1e-5)
    standard, scale = choose_units("standard", moments), choose_units("scale", moments)
    assert standard is not None and scale is not None and choose_units("none", moments) is None
    made = standard.apply(v)
    assert isinstance(made, np.ndarray) and np.isfinite(made).all()
    assert made[:, :-1, 0].std() == pytest.approx(1, rel=1e-4) and abs(made[:, :, 1]).max() < 1e-6
    assert scale.mean == (0.0, 0.0) and scale.scale[1] == pytest.approx(7)
    streamed = standard.apply(array_source(v))
    assert isinstance(streamed, Source)
    np.testing.assert_array_equal(streamed.read([1], [2, 3]), made[1:2, 2:4])


def said(v, layout=None) -> str:
    return " ".join(survey(array_source(v, layout=layout)).warnings)


def test_warnings_tell_what_usually_goes_wrong(u):
    rng = np.random.default_rng(0)
    x = np.arange(64) / 64
    periodic = np.sin(2 * np.pi * (x + rng.random((8, 12, 1, 1))))
    assert said(u) == ""
    assert "Not periodic along x: the jump" in said(u + np.linspace(0, 5, 32))
    assert "repeats the first" in said(np.concatenate([periodic, periodic[..., :1]], axis=-1))
    walls = np.sin(np.pi * np.arange(65) / 64) * (1 + rng.random((8, 12, 1, 1)))
    assert "kink" in said(walls)
    assert "Channel 1 is constant" in said(np.concatenate([u, np.full_like(u, 7)], axis=2))
    assert "nearly unrelated" in said(rng.normal(size=(8, 12, 1, 64)))
    still = np.repeat(u[:, :1], 12, axis=1)
    assert "too small" in said(still)
    assert "exchanged" in said(np.swapaxes(np.repeat(u, 6, axis=2), 2, 3))
    outlier = u.copy()
    outlier[3, 4, 0, 5] = 1e9
    assert "in sample 3, step 4, where states usually reach" in said(outlier)
    assert "scores lose digits" in said(u * 1e-9)
    # A wave that moves far in one step is no worse to learn than one that does not.
    far = np.sin(2 * np.pi * (x + 0.37 * np.arange(12)[:, None, None] + rng.random((8, 1, 1, 1))))
    assert said(far) == ""


def test_only_the_axis_that_is_not_periodic_is_named(u):
    field = np.sin(2 * np.pi * np.arange(16) / 16)[:, None] * np.linspace(0, 1, 16)
    states = field * np.random.default_rng(0).normal(size=(6, 5, 1, 1, 1))
    assert "along y" in said(states) and "along x" not in said(states)


@pytest.mark.parametrize("name", ["sgno", "sgno-x", "fno", "unet", "cno", "linear"])
@pytest.mark.parametrize("points", [(6,), (20, 12), (8, 8, 4)])
def test_sizes_are_those_that_the_grid_carries(name, points):
    grid, config = Grid(3, points), get_model(name, len(points))
    sized = config.for_grid(grid)
    eqx.filter_eval_shape(lambda: sized.build(grid, key=jax.random.PRNGKey(0)))
    assert config.for_grid(Grid(1, (160,) * len(points))) == config


def test_a_normalised_step_is_the_step_in_other_units(u, tmp_path):
    v = jnp.asarray(u[0, :2])
    grid, config = Grid(1, (32,)), NormalisedConfig(get_model(TINY, 1), [2.0], [3.0])
    step = config.build(grid, key=jax.random.PRNGKey(0))
    expected = 3 * step.step((v[0] - 2) / 3) + 2
    np.testing.assert_allclose(step(v[0]), expected, rtol=1e-6)
    np.testing.assert_allclose(batch(prepare(step), v)[0], expected, rtol=1e-5, atol=1e-6)
    assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    assert sgno.count_parameters(step) == sgno.count_parameters(step.step)
    save(tmp_path / "w.safetensors", step)
    np.testing.assert_array_equal(load(tmp_path / "w.safetensors")(v[0]), step(v[0]))
    trained = sgno.train(step, u, updates=2, key=jax.random.PRNGKey(0))
    assert np.isfinite(trained.losses).all()
    with pytest.raises(InputError, match="positive scales"):
        NormalisedConfig(get_model(TINY, 1), [2.0], [0.0])
    with pytest.raises(InputError, match="2 channels"):
        config.build(Grid(2, (32,)), key=jax.random.PRNGKey(0))
