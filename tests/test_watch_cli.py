"""`sgno rollout --watch`: a rollout held against training data, to the end or to the first fault."""

import json
import os

import equinox as eqx
import h5py
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.grid import Grid
from sgno.nn.linear import LinearConfig
from sgno.weights import save

N, RATE = 32, 1.02
# |RATE^t - 1| first passes the monitor's tenth at this step.
AMPLITUDE_AT = 5


def waves(samples, times, seed):
    """Four waves that travel by one point a step: `(samples, times, 1, N)`."""
    rng = np.random.default_rng(seed)
    k, x = np.arange(1, 5), 2 * np.pi * np.arange(N) / N
    a, p = rng.uniform(0.3, 1, (samples, 4)), rng.uniform(0, 2 * np.pi, (samples, 4))
    first = (a[:, None] * np.cos(k * x[:, None] + p[:, None])).sum(axis=-1)
    return np.stack([np.roll(first, t, axis=-1) for t in range(times)], axis=1)[:, :, None].astype("float32")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Steps that shift by one point, one of them growing, and the data that both should have learned."""
    folder = tmp_path_factory.mktemp("watch")
    grid, config = Grid(1, (N,)), LinearConfig()
    angle = -2 * np.pi * np.arange(N // 2 + 1) / N
    for name, rate in (("right", 1.0), ("growing", RATE)):
        values = tuple(jnp.asarray(rate * f(angle), jnp.float32)[None, None] for f in (np.cos, np.sin))
        step = eqx.tree_at(lambda s: (s.M_real, s.M_imag), config.build(grid), values)
        save(folder / f"{name}.st", step)
    np.savez(folder / "data.npz", train=waves(6, 21, 0), test=waves(3, 2, 1))
    return folder


def invoke(folder, name, out, *options):
    data = folder / "data.npz"
    words = [
        folder / f"{name}.st",
        "--initial",
        data,
        "--key",
        "test",
        "--watch",
        data,
        "--out",
        out,
    ]
    return CliRunner().invoke(app, ["rollout", *map(str, words), "--json", *map(str, options)])


def read(path, name):
    if path.suffix == ".npz":
        with np.load(path) as file:
            return file[name]
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return np.asarray(file[name])
    return np.load(path) if path.suffix == ".npy" else np.asarray(zarr.open_group(str(path), mode="r")[name])


def test_a_right_rollout_is_flagged_nowhere(place, tmp_path):
    done = invoke(place, "right", tmp_path / "u.npz", "--steps", 60, "--statistics")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["watched"]["phases_predictable"] and not summary["stopped"] and summary["steps"] == 60
    assert summary["watched"]["first_step"] == {
        fault: [None] * 3 for fault in ("amplitude", "blocking", "phase")
    }
    assert "not seen up to step 60" in done.stderr
    bands = np.sum([read(tmp_path / "u.npz", band) for band in ("low", "mid", "high")], axis=0)
    energy = read(tmp_path / "u.npz", "energy")
    np.testing.assert_allclose(bands[:, 1:], energy[:, 1:], rtol=1e-4)
    assert np.isnan(bands[:, 0]).all() and (read(tmp_path / "u.npz", "drift")[:, 1:] < 0.01).all()


def test_a_fault_is_reported_and_the_rollout_goes_on(place, tmp_path):
    done = invoke(place, "growing", tmp_path / "u.npy", "--steps", 9)
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["watched"]["first_step"]["amplitude"] == [AMPLITUDE_AT] * 3
    assert summary["watched"]["first_step"]["phase"] == [None] * 3
    assert "amplitude: first at step 5, in 3 of 3" in done.stderr
    assert read(tmp_path / "u.npy", "u").shape == (3, 10, 1, N)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".zarr"])
def test_a_stopped_rollout_ends_with_the_fault_in_every_format(place, suffix, tmp_path):
    out = tmp_path / f"u{suffix}"
    done = invoke(place, "growing", out, "--steps", 4000, "--every", 2, "--stop-on", "phase,amplitude")
    assert done.exit_code == 0 and "stopped at step 5" in done.stderr, done.stderr
    summary = json.loads(done.stdout)
    assert summary["stopped"] and summary["steps"] == AMPLITUDE_AT and summary["frames"] == 3
    found, start = read(out, "u"), waves(3, 2, 1)[:, 0]
    assert found.shape == (3, 3, 1, N)
    for frame in range(3):
        expected = RATE ** (2 * frame) * np.roll(start, 2 * frame, axis=-1)
        np.testing.assert_allclose(found[:, frame], expected, atol=1e-4)
    if suffix != ".npy":
        assert read(out, "step").tolist() == [0, 2, 4] and read(out, "drift").shape == (3, 3)
    assert os.listdir(tmp_path) == [out.name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stop-on", "noise"], "Unknown fault 'noise'"),
        (["--watch", "coarse.npy"], "Give data of the same channels and grid"),
        (["--watch", "still.npy"], "has one time only"),
        (["--watch", "nowhere.npz"], "There is no file"),
        (["--watch-key", "valid"], "valid"),
    ],
)
def test_what_cannot_be_watched_by_is_refused(place, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("coarse.npy", np.zeros((2, 3, 1, N // 2)))
    np.save("still.npy", np.zeros((2, 1, 1, N)))
    before = sorted(os.listdir())
    done = invoke(place, "right", tmp_path / "u.npz", "--steps", 3, *options)
    assert done.exit_code == 2 and message in done.stderr, done.stderr
    assert sorted(os.listdir()) == before


def test_stopping_needs_something_to_watch_by(place, tmp_path):
    words = [
        "rollout",
        place / "right.st",
        "--initial",
        place / "data.npz",
        "--steps",
        3,
        "--out",
        "u.npy",
    ]
    done = CliRunner().invoke(app, [*map(str, words), "--stop-on", "phase"])
    assert done.exit_code == 2 and "need --watch" in done.stderr
