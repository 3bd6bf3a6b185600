"""States between walls: learned beyond them, returned within them, by any model."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_data import TINY, fitted, invoke

import sgno
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.source import array_source
from sgno.io.survey import survey
from sgno.io.walls import Walls, find_walls, parse_boundary
from sgno.nn.linear import LinearConfig
from sgno.nn.walled import Walled, WalledConfig

N, TIMES = 33, 8


def positions(nodes: str, n: int = N) -> np.ndarray:
    return np.linspace(0, 1, n) if nodes == "walls" else (np.arange(n) + 0.5) / n


def heat(nodes: str, condition: str, values: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """The closed form of u_t = 0.02 u_xx between walls, in steps of 0.1, one channel."""
    x, k = positions(nodes), np.arange(1, 5)[:, None]
    modes = (np.sin if condition == "dirichlet" else np.cos)(np.pi * k * x)
    decay = np.exp(-0.002 * (np.pi * k) ** 2 * np.arange(TIMES)[:, None, None])
    amplitudes = np.random.default_rng(0).normal(size=(8, 1, 4, 1))
    low, high = values
    states = (amplitudes * decay * modes).sum(2) + low + (high - low) * x
    return states[:, :, None].astype(np.float32)


@pytest.mark.parametrize("nodes", ["walls", "cells"])
@pytest.mark.parametrize(("condition", "values"), [("dirichlet", (1.0, 3.0)), ("neumann", (0.0, 0.0))])
def test_heat_between_walls_is_linear_again(nodes, condition, values):
    u = heat(nodes, condition, values)
    text = condition if condition == "neumann" or nodes == "walls" else f"dirichlet{values}"
    walled = sgno.fit(u, "linear", boundary=text, test=2)
    assert walled.record["gmean100"] < 1e-5 and walled.warnings == ()
    assert walled.record["job"]["task"]["walls"]["nodes"] == nodes
    periodic = sgno.fit(u, "linear", test=2)
    assert periodic.record["gmean100"] > 30 * walled.record["gmean100"]
    assert f'--boundary "x: {condition}"' in " ".join(periodic.warnings)
    states = np.asarray(sgno.rollout(walled.step, u[0, 0], TIMES - 1))
    np.testing.assert_allclose(states, u[0, 1:], atol=1e-4)
    if nodes == "walls" and condition == "dirichlet":
        np.testing.assert_array_equal(states[..., 0, 0], 1)


@pytest.mark.parametrize("nodes", ["walls", "cells"])
def test_what_enters_leaves_and_is_odd_even_and_periodic(nodes):
    text = "u x: dirichlet(1, 2), v x: neumann, y: periodic"
    walls = Walls(parse_boundary(text, 2, 2), nodes)
    u = np.random.default_rng(0).normal(size=(3, 5, 6, 4)).astype(np.float32)
    if nodes == "walls":
        u[:, [0, 2], 0], u[:, [0, 2], -1] = 1, 2
    # Two frames of two channels, one known input.
    entered = walls.enter(u, 4)
    assert entered.shape == (3, 6, *walls.points((6, 4))) and walls.width(5) == 6
    np.testing.assert_allclose(walls.leave(entered, 4, 5), u, atol=1e-6)
    np.testing.assert_allclose(walls.enter(jnp.asarray(u), 4), entered, atol=1e-6)
    mirror = lambda w: np.roll(w[..., ::-1, :], 1, -2) if nodes == "walls" else w[..., ::-1, :]
    for channel, sign in enumerate((-1, 1, -1, 1, 1)):
        np.testing.assert_allclose(mirror(entered[:, channel]), sign * entered[:, channel], atol=1e-6)


def test_any_model_saves_loads_and_runs_at_other_points(tmp_path):
    walls = Walls(parse_boundary("dirichlet(0, 1)", 1, 1), "cells")
    config = WalledConfig(LinearConfig(), walls, 1)
    step = config.build(Grid(1, (12,)), key=jax.random.PRNGKey(0))
    assert isinstance(step, Walled) and step.step.grid == Grid(2, (24,))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(1, 12)), jnp.float32)
    # The identity on the doubled grid is the identity between the walls.
    np.testing.assert_allclose(step(u), u, atol=1e-5)
    sgno.save(tmp_path / "w.st", step)
    loaded = sgno.load(tmp_path / "w.st")
    assert loaded.config == config
    np.testing.assert_array_equal(loaded(u), step(u))
    assert step(jnp.zeros((1, 20))).shape == (1, 20)


def test_a_state_that_is_continued_already_draws_no_warning():
    for nodes in ("walls", "cells"):
        for condition in ("dirichlet", "neumann"):
            u = heat(nodes, condition)
            walls = find_walls(condition, array_source(u))
            assert walls is not None and walls.nodes == nodes
            assert survey(array_source(walls.enter(u, 1))).warnings == ()


@pytest.fixture
def place(tmp_path, monkeypatch, cache) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(
        "own.npz", u=heat("walls", "dirichlet", (0.0, 1.0)), steps=np.full(8, 0.1), mixed=np.arange(1, 9)
    )
    return tmp_path


def test_the_command_line_between_walls(place):
    found = fitted("own.npz", "--model", "linear", "--boundary", "x: dirichlet", "--history", 2, "--test", 2)
    assert found["gmean100"] < 1e-5
    weights = found["weights"][0]
    done = invoke("rollout", weights, "--initial", "own.npz", "--key", "u", "--steps", 5, "--out", "out.npy")
    assert done.exit_code == 0, done.output
    rolled = np.load("out.npy")
    np.testing.assert_allclose(rolled, heat("walls", "dirichlet", (0.0, 1.0))[:, 1:7], atol=1e-4)
    done = invoke("evaluate", weights, "--data", "own.npz", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout.splitlines()[-1])["gmean100"] < 1e-5


def test_time_steps_and_lengths_are_stored_with_the_task():
    u = heat("walls", "neumann")
    one = sgno.fit(u, "linear", dt=np.full(8, 0.1), length=2.0, boundary="neumann", test=2)
    task = one.record["job"]["task"]
    assert task["dt"] == 0.1 and task["length"] == [2.0] and "inputs" not in task
    mixed = sgno.fit(u, "linear", dt=np.linspace(0.1, 0.2, 8), test=2)
    assert [spec["name"] for spec in mixed.record["job"]["task"]["inputs"]] == ["dt"]
    assert np.isfinite(mixed.step.bind(dt=0.1)(jnp.asarray(u[0, 0]))).all()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--boundary", "dirichelt"], "Did you mean 'dirichlet'"),
        (["--boundary", "z: dirichlet"], "Unknown axis or channel"),
        (["--boundary", "x: dirichlet(1)"], "not two numbers"),
        (["--boundary", "x: neumann(0, 1)"], "only dirichlet takes values"),
        (["--boundary", "x:: ("], "cannot be read from"),
        (["--boundary", "dirichlet", "--nodes", "faces"], "Unknown place"),
        (["--nodes", "walls"], "Say which with --boundary"),
        (["--dt", "0"], "dt must be positive"),
        (["--dt", "step"], "Did you mean"),
        (["--length", "0"], "does not fit"),
        (["--length", "long"], "is not a number"),
    ],
)
def test_wrong_walls_end_in_one_line(place, flags, message):
    before = sorted(os.listdir())
    done = invoke("fit", "own.npz", "--key", "u", "--model", TINY, *flags)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2 and message in said and sorted(os.listdir()) == before, said


def test_values_that_vary_at_a_wall_are_refused():
    u = np.random.default_rng(0).normal(size=(4, 5, 1, 16)).astype(np.float32)
    with pytest.raises(InputError, match="dirichlet needs constants"):
        find_walls("dirichlet", array_source(u))
    with pytest.raises(InputError, match="contradict each other"):
        Walls(parse_boundary("x: dirichlet(0, 1), y: dirichlet(0, 0)", 1, 2), "cells")
    with pytest.raises(InputError, match="periodic for one channel"):
        Walls(parse_boundary("u: dirichlet", 2, 1), "cells")
