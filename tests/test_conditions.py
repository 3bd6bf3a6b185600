"""Known inputs and earlier frames: given to every model, never predicted, never scored."""

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
from sgno.io.inputs import Conditions, Inputs, InputSpec, shaped
from sgno.io.source import array_source
from sgno.nn.conditioned import Bound, Conditioned
from sgno.nn.linear import LinearConfig
from sgno.training.loop import _batch_error

N, TIMES = 16, 12
RNG = np.random.default_rng(0)
CONTROL = RNG.normal(size=(8, TIMES)).astype(np.float32)


START = RNG.normal(size=(8, 1, N))


def forced() -> np.ndarray:
    """u(t+1) = 0.9 u(t) + c(t), the control holding over the step."""
    u = np.zeros((8, TIMES, 1, N), np.float32)
    u[:, 0] = START
    for t in range(TIMES - 1):
        u[:, t + 1] = 0.9 * u[:, t] + CONTROL[:, t, None, None]
    return u


def waves() -> np.ndarray:
    """Standing and travelling waves, of which the velocity is hidden: u(t+1) = 2 cos(k dt) u(t) - u(t-1)."""
    k, x, t = np.arange(1, 5)[:, None], 2 * np.pi * np.arange(N) / N, 0.2 * np.arange(TIMES)
    a, b = RNG.normal(size=(2, 8, 1, 4, 1))
    there, back = (np.exp(1j * (k * x + sign * k * t[:, None, None])) for sign in (1, -1))
    return (a * there + b * back).real.sum(-2)[:, :, None].astype(np.float32)


@pytest.fixture(scope="module")
def controlled() -> sgno.Fit:
    return sgno.fit(forced(), "linear", inputs={"c": CONTROL}, holds=["c"], test=2)


def test_a_control_is_given_at_every_step_and_never_scored(controlled):
    step, u = controlled.step, forced()
    assert isinstance(step, Conditioned) and step.grid == Grid(1, (N,))
    assert controlled.record["gmean100"] < 1e-5
    # Scored on the shape of u alone.
    assert sgno.evaluate(step, u, inputs={"c": CONTROL}).gmean100 < 1e-5
    bound = step.bind(c=CONTROL[3])
    assert isinstance(bound, Bound)
    states = sgno.rollout(bound, u[3, 0], TIMES)
    np.testing.assert_allclose(states[:-1], u[3, 1:], atol=1e-5)
    np.testing.assert_allclose(bound(jnp.asarray(u[3, 0])), u[3, 1], atol=1e-5)
    many = step.bind(c=CONTROL[:, :, None])
    np.testing.assert_allclose(sgno.rollout(many, u[:, 0], 5), np.moveaxis(u[:, 1:6], 1, 0), atol=1e-5)
    with pytest.raises(InputError, match="known for 12 steps, not for 13"):
        sgno.rollout(bound, u[3, 0], TIMES + 1)
    with pytest.raises(InputError, match=r"step\.bind"):
        sgno.rollout(step, u[3, 0], 2)
    with pytest.raises(InputError, match="Known: c"):
        step.bind(d=1.0)
    with pytest.raises(InputError, match="needs its input 'c'"):
        sgno.evaluate(step, u)


def test_two_frames_determine_what_one_does_not(tmp_path):
    u = waves()
    one, two = (sgno.fit(u, "linear", history=m, test=2) for m in (1, 2))
    assert one.record["gmean100"] > 0.3 and two.record["gmean100"] < 1e-4
    assert len(two.record["mean_nrmse"]) == TIMES - 2
    sgno.save(tmp_path / "w.st", two.step)
    step = sgno.load(tmp_path / "w.st")
    states = sgno.rollout(step, step.start(u[0, :2]), 5)
    np.testing.assert_allclose(states, u[0, 2:7], atol=1e-3)
    many = sgno.rollout(step, step.start(u[:3, :2]), 5, batched=True, include_start=True)
    np.testing.assert_allclose(many, np.moveaxis(u[:3, 1:7], 1, 0), atol=1e-3)


def test_a_network_learns_through_several_steps_with_the_inputs_of_each():
    u = forced()
    wide = Conditions(array_source(u), Inputs.beside(array_source(u), {"c": CONTROL})).read()
    assert wide.shape == (8, TIMES, 3, N)
    np.testing.assert_array_equal(wide[:, :-1, 2], wide[:, 1:, 1])
    exact = Conditioned(
        lambda z: 0.9 * z + jnp.roll(z, -1, axis=0), Grid(1, (N,)), 1, (InputSpec("c", True),)
    )
    states = jnp.asarray(np.moveaxis(wide[:, :5], 1, 0))
    # Three channels go in; the error is that of the first, over steps whose controls all differ.
    assert _batch_error(None, 4, False, 0.0)(exact, states, jax.random.PRNGKey(0)) < 1e-10


def test_shapes_of_inputs():
    points = (4, 6)
    cases = {
        (): (1, 1, 1, 1),
        (3,): (3, 1, 1, 1),
        (4, 6): (1, 1, 4, 6),
        (3, 4, 6): (3, 1, 4, 6),
        (3, 5): (3, 5, 1, 1),
        (3, 5, 4, 6): (3, 5, 4, 6),
        (1, 5, 1, 1): (1, 5, 1, 1),
    }
    for shape, full in cases.items():
        assert shaped("c", np.zeros(shape), 3, 5, points).shape == full
    with pytest.raises(InputError, match="two ways"):
        shaped("c", np.zeros((8,)), 8, 5, (8,))
    with pytest.raises(InputError, match="3 samples, 5 frames and 4x6 points"):
        shaped("c", np.zeros((7,)), 3, 5, points)
    with pytest.raises(InputError, match="not finite"):
        shaped("c", np.full(3, np.nan), 3, 5, points)


@pytest.fixture
def place(tmp_path, monkeypatch, cache) -> Path:
    monkeypatch.chdir(tmp_path)
    u = forced()
    np.savez("own.npz", train=u[:6], test=u[6:], c_train=CONTROL[:6], c_test=CONTROL[6:])
    np.savez("new.npz", u=u[6:], c=CONTROL[6:])
    return tmp_path


def test_the_command_line_takes_inputs_from_files_and_as_values(place):
    found = fitted("own.npz", "--model", "linear", "--inputs", "c", "--holds", "c", "--history", 2)
    assert found["gmean100"] < 1e-5
    weights = found["weights"][0]
    done = invoke("evaluate", weights, "--data", "new.npz", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout.splitlines()[-1])["gmean100"] < 1e-5
    done = invoke("rollout", weights, "--initial", "new.npz", "--steps", 8, "--out", "out.npy")
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(np.load("out.npy"), forced()[6:, 1:10], atol=1e-4)
    done = invoke(
        "rollout", weights, "--initial", "new.npz", "--inputs", "c=0", "--steps", 3, "--out", "z.npy"
    )
    assert done.exit_code == 0, done.output
    rolled = np.load("z.npy")
    np.testing.assert_allclose(rolled[:, 2], 0.9 * rolled[:, 1], atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--inputs", "d"], "Unknown input in own.npz 'd_train'"),
        (["--inputs", "c,c"], "named twice"),
        (["--inputs", "c", "--holds", "d"], "Unknown input to hold"),
        (["--history", 0], "must be at least 1"),
        (["--history", 12], "at least 13 frames"),
        (["--inputs", "c", "--model", "equation"], "takes no --inputs here"),
        (["--inputs", "train"], "Input 'train' has the shape"),
    ],
)
def test_wrong_inputs_end_in_one_line(place, flags, message):
    before = sorted(os.listdir())
    done = invoke("fit", "own.npz", "--model", TINY, *flags)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 2 and message in said and sorted(os.listdir()) == before, said


def test_a_rollout_at_another_time_step(place):
    step = sgno.fit(forced(), "linear", dt=np.linspace(0.1, 0.2, 8), test=2).step
    sgno.save("dt.st", step)
    np.save("one.npy", START[0].astype(np.float32))
    done = invoke("rollout", "dt.st", "--initial", "one.npy", "--steps", 3, "--dt", 0.15, "--out", "out.npy")
    assert done.exit_code == 0, done.output
    states = sgno.rollout(step.bind(dt=0.15), jnp.asarray(START[0], jnp.float32), 3)
    np.testing.assert_allclose(np.load("out.npy")[0, 1:], states, rtol=1e-5, atol=1e-5)


def test_a_rollout_without_its_inputs_is_refused(place, controlled):
    sgno.save("w.st", controlled.step)
    np.save("one.npy", np.zeros((1, N), np.float32))
    sgno.save("plain.st", LinearConfig().build(Grid(1, (N,))))
    before = sorted(os.listdir())
    for weights, flags, message in (
        ("w.st", [], "trained with the inputs c, which are not in one.npy"),
        ("w.st", ["--inputs", "d=1"], "Unknown input of the model"),
        ("w.st", ["--inputs", "c=high"], "not a number"),
        ("plain.st", ["--inputs", "c=1"], "has no inputs"),
        ("plain.st", ["--dt", "0.1"], "cannot change it"),
        ("plain.st", ["--dt", "0"], "must be positive"),
    ):
        done = invoke("rollout", weights, "--initial", "one.npy", "--steps", 3, "--out", "out.npy", *flags)
        said = " ".join(done.stderr.split())
        assert done.exit_code == 2 and message in said, said
    assert sorted(os.listdir()) == before
