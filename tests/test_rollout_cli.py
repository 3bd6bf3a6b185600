"""`sgno rollout`: the states of `sgno.rollout` in any format, and nothing half-written."""

import json
import os

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from jaxtyping import Array, Float
from typer.testing import CliRunner

import sgno
from sgno import engine
from sgno.cli.app import app
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.linear import LinearConfig
from sgno.nn.sgno import SGNOConfig
from sgno.solve.monitor import Statistics
from sgno.solve.writer import Spec, writer
from sgno.weights import save

N, STEPS = 16, 23


class Growing(eqx.Module):
    """Squares itself, so that a start above 1 overflows at a step that can be counted."""

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return u * u


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Weights of a step that shifts by one point, and initial states in every form."""
    folder = tmp_path_factory.mktemp("rollout")
    grid, config = Grid(1, (N,)), LinearConfig()
    step = config.build(grid)
    angle = -2 * np.pi * np.arange(N // 2 + 1) / N
    step = eqx.tree_at(
        lambda s: (s.M_real, s.M_imag),
        step,
        (jnp.cos(jnp.asarray(angle))[None, None], jnp.sin(jnp.asarray(angle))[None, None]),
    )
    save(folder / "shift.st", step)
    states = np.random.default_rng(0).normal(size=(2, 1, N)).astype(np.float32)
    states -= (states @ (-1.0) ** np.arange(N) / N)[..., None] * (-1.0) ** np.arange(N)  # no Nyquist mode
    np.save(folder / "one.npy", states[0])
    np.save(folder / "many.npy", states)
    np.save(folder / "field.npy", states[0, 0])
    np.savez(folder / "trajectories.npz", u=np.stack([states, states + 1], axis=1))
    np.save(folder / "last.npy", np.moveaxis(states[:, None], 2, -1))
    return folder, states


def invoke(*arguments):
    return CliRunner().invoke(app, ["rollout", *map(str, arguments)])


def read(path, name="u") -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        with np.load(path) as file:
            return file[name]
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return np.asarray(file[name])
    return np.asarray(zarr.open_group(str(path), mode="r")[name])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".zarr"])
def test_every_format_holds_the_rollout(place, suffix, tmp_path):
    folder, states = place
    out = tmp_path / f"out{suffix}"
    done = invoke(
        folder / "shift.st", "--initial", folder / "many.npy", "--steps", STEPS, "--every", 4, "--out", out
        , "--json"
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (
        summary["frames"] == 6 and summary["samples"] == 2 and summary["first_nonfinite_step"] == [None, None]
    )
    found = read(out)
    assert found.shape == (2, 6, 1, N) and found.dtype == np.float32
    for frame in range(6):
        np.testing.assert_allclose(found[:, frame], np.roll(states, 4 * frame, axis=-1), atol=1e-5)
    if suffix != ".npy":
        assert read(out, "step").tolist() == [0, 4, 8, 12, 16, 20]
    assert os.listdir(tmp_path) == [out.name]
    # The file is itself a file of trajectories: the rollout goes on from its first frame.
    again = invoke(folder / "shift.st", "--initial", out, "--steps", 1, "--out", tmp_path / "again.npy")
    assert again.exit_code == 0, again.stderr


@pytest.mark.parametrize(
    ("name", "options"),
    [("one", []), ("field", []), ("many", ["--samples", 1]), ("last", ["--layout", "sample time x channel"])],
)
def test_initial_states_come_in_any_form(place, name, options, tmp_path):
    folder, states = place
    out = tmp_path / "out.npy"
    done = invoke(
        folder / "shift.st",
        "--initial",
        folder / f"{name}.npy",
        "--steps",
        1,
        "--out",
        out,
        *options,
    )
    assert done.exit_code == 0, done.stderr
    np.testing.assert_allclose(read(out)[0, 0], states[0], atol=1e-6)


def test_the_first_nonfinite_step_is_exact_even_between_kept_ones():
    # 2^(2^t) passes the largest float32, just below 2^128, at t = 7; 1 stays.
    u0 = np.full((2, 1, 4), 2.0, np.float32)
    u0[1] = 1
    (*_, last) = engine.stream(Growing(), u0, 12, every=6, observe=(Statistics(),), batched=True)
    assert last.memory[0].tolist() == [7, 0]
    assert last.seen[0].finite[-1].tolist() == [False, True]


def test_statistics_alone(place, tmp_path):
    folder, states = place
    out = tmp_path / "numbers.npz"
    done = invoke(
        folder / "shift.st",
        "--initial",
        folder / "many.npy",
        "--steps",
        9,
        "--statistics",
        "--out",
        out,
    )
    assert done.exit_code == 0 and "Every state was finite" in done.stderr, done.stderr
    with np.load(out) as file:
        found = dict(file)
    assert sorted(found) == ["energy", "finite", "max", "step"] and found["energy"].shape == (2, 10)
    np.testing.assert_allclose(
        found["energy"], np.repeat((states**2).mean((1, 2))[:, None], 10, 1), rtol=1e-4
    )
    np.testing.assert_allclose(found["max"], np.repeat(np.abs(states).max((1, 2))[:, None], 10, 1), rtol=1e-4)
    assert found["finite"].dtype == bool and found["finite"].all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"--steps": 0}, "use at least one step"),
        ({"--every": 99}, "keep one state in 1 to 5"),
        ({"--samples": 0}, "must be at least 1"),
        ({"--out": "out.txt"}, "has no known format"),
        ({"--initial": "nowhere.npy"}, "There is no file"),
        ({"--initial": "wrong.npy"}, "states of shape"),
        ({"--initial": "deep.npy"}, "axes. For this model in 1D"),
        ({"--initial": "text.npy"}, "real numbers"),
        ({"--initial": "nan.npy"}, "has a NaN in sample 0"),
        ({"--out": "there.npy"}, "exists already"),
        ({"--out": "stats.npy", "--statistics": None}, "can hold one array"),
        ({"--steps": 10**15}, "the disk has"),
        ({"weights": "kd1d/sgno"}, "Did you mean 'kdv1d/sgno'"),
        ({"weights": "one.npy"}, "is not a safetensors file"),
    ],
)
def test_wrong_input_says_what_to_do_and_leaves_nothing(place, changed, message, tmp_path, monkeypatch):
    folder, states = place
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", states[0])
    np.save("wrong.npy", np.zeros((3, 2, N)))
    np.save("deep.npy", np.zeros((1,) * 6))
    np.save("text.npy", np.array([["a"] * N]))
    np.save("nan.npy", np.full((1, N), np.nan))
    np.save("there.npy", np.zeros(3))
    before = sorted(os.listdir())
    options = {"--initial": "one.npy", "--steps": 5, "--out": "out.npy", **changed}
    weights = options.pop("weights", folder / "shift.st")
    flat = [part for pair in options.items() for part in pair if part is not None]
    done = invoke(weights, *flat)
    assert done.exit_code == 2 and message in done.stderr, done.stderr
    assert sorted(os.listdir()) == before


def test_an_interrupt_leaves_nothing(place, tmp_path, monkeypatch):
    folder, _ = place
    run = engine.run

    def interrupted(step, carry, *rest, **options):
        if int(carry.t) > 3:
            raise KeyboardInterrupt
        return run(step, carry, *rest, **options)

    monkeypatch.setattr(engine, "run", interrupted)
    done = invoke(
        folder / "shift.st",
        "--initial",
        folder / "one.npy",
        "--steps",
        999,
        "--out",
        tmp_path / "u.h5",
    )
    assert done.exit_code == 130 and "was not written" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_only_when_asked(place, tmp_path):
    folder, _ = place
    out = tmp_path / "u.zarr"
    command = [folder / "shift.st", "--initial", folder / "one.npy", "--steps", 2, "--out", out]
    assert invoke(*command).exit_code == 0
    assert invoke(*command).exit_code == 2
    assert invoke(*command, "--force").exit_code == 0
    assert read(out).shape == (1, 3, 1, N) and os.listdir(tmp_path) == ["u.zarr"]


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Two hundred megabytes are written in parts of one; the file is whole and where it should be."""
    import tracemalloc

    spec = Spec((4, 200, 250_000 // 4))
    part = np.ones((4, 1, 250_000 // 4), np.float32)
    tracemalloc.start()
    with writer(tmp_path / "u.npz", {"u": spec}) as sink:
        for t in range(200):
            sink.put("u", t, part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "u.npz").stat().st_size > spec.nbytes and peak < 20e6


def test_an_error_inside_leaves_nothing(tmp_path):
    with pytest.raises(InputError), writer(tmp_path / "u.h5", {"u": Spec((1, 2, 3))}):
        raise InputError("stop")
    assert os.listdir(tmp_path) == []


def test_rollout_composes_with_jit_vmap_and_grad():
    step = SGNOConfig(3, 4, 1, correction="none").build(Grid(1, (16,)), key=jax.random.key(0))
    u = jnp.asarray(np.random.default_rng(1).normal(size=(2, 1, N)), jnp.float32)

    @eqx.filter_jit
    def compose(step, u):
        def error(step, u):
            mapped = jax.vmap(lambda u: sgno.rollout(step, u, 3))(u)
            return jnp.mean(mapped**2), mapped

        params, rest = eqx.partition(step, eqx.is_inexact_array)
        both = jax.grad(lambda params, u: error(eqx.combine(params, rest), u), argnums=(0, 1), has_aux=True)
        (of_weights, of_state), mapped = both(params, u)
        return sgno.rollout(step, u[0], 3), mapped, of_weights, of_state

    one, mapped, of_weights, of_state = compose(step, u)
    assert one.shape == (3, 1, N) and mapped.shape == (2, 3, 1, N)
    np.testing.assert_allclose(mapped[0], one, atol=1e-5)
    # Every parameter of the step is heard three steps later.
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(of_weights))
    assert of_state.shape == u.shape and (jnp.abs(of_state).max(axis=(1, 2)) > 0).all()
