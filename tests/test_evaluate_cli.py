"""`sgno evaluate`: known errors are found, files appear whole, wrong input ends in one line."""

import json
import os

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.grid import Grid
from sgno.nn.linear import LinearConfig
from sgno.weights import save

N, TIMES, GROWTH = 16, 6, 1.1


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A step that multiplies by 1.1, and trajectories that stand still: nRMSE = 1.1^t - 1."""
    folder = tmp_path_factory.mktemp("evaluate")
    grid, config = Grid(1, (N,)), LinearConfig()
    step = eqx.tree_at(lambda s: s.M_real, config.build(grid), GROWTH * jnp.ones((1, 1, N // 2 + 1)))
    save(folder / "grow.st", step)
    states = np.random.default_rng(0).normal(size=(5, 1, N)).astype(np.float32)
    still = np.repeat(states[:, None], TIMES, axis=1)
    np.savez(folder / "data.npz", test=still, train=still[:1] + 3)
    return folder, still


def invoke(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_known_errors_are_found(place, tmp_path):
    folder, _ = place
    out = tmp_path / "out"
    command = [
        folder / "grow.st",
        "--data",
        folder / "data.npz",
        "--out",
        out,
        "--tau",
        0.25,
        "--json",
    ]
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    errors = GROWTH ** np.arange(1, TIMES) - 1
    assert summary["shape"] == [5, TIMES, 1, N]
    np.testing.assert_allclose(summary["mean_nrmse"], errors, rtol=1e-4)
    np.testing.assert_allclose(summary["gmean100"], np.exp(np.log(errors).mean()), rtol=1e-4)
    np.testing.assert_allclose(summary["mean_correlation"], 1, rtol=1e-5)
    # 1.1² - 1 = 0.21 and 1.1³ - 1 = 0.33
    assert summary["stable_step"] == 2 and summary["nonfinite_steps"] == 0
    assert summary["spectral"]["phase"] < 1e-4
    assert sorted(os.listdir(out)) == ["curves.npz", "evaluation.json", "evaluation.png", "evaluation.svg"]
    assert (out / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    with np.load(out / "curves.npz") as curves:
        assert curves["nrmse"].shape == (TIMES - 1, 5)
        ratio = curves["spectrum"] / curves["reference_spectrum"]
        np.testing.assert_allclose(ratio[:, 1], GROWTH ** (2 * np.arange(1, TIMES)), rtol=1e-3)
    assert json.loads((out / "evaluation.json").read_text())["gmean100"] == summary["gmean100"]
    again = invoke(*command)
    assert again.exit_code == 2 and "exists already" in again.stderr
    less = json.loads(invoke(*command, "--force", "--samples", 2, "--steps", 3).stdout)
    assert less["shape"] == [2, 4, 1, N] and os.listdir(tmp_path) == ["out"]


def test_a_rollout_that_blew_up_is_a_result(place, tmp_path):
    folder, _ = place
    grid, config = Grid(1, (N,)), LinearConfig()
    step = eqx.tree_at(lambda s: s.M_real, config.build(grid), 1e15 * jnp.ones((1, 1, N // 2 + 1)))
    save(tmp_path / "burst.st", step)
    done = invoke(tmp_path / "burst.st", "--data", folder / "data.npz", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["gmean100"] is None and summary["stable_step"] == 0 and summary["nonfinite_steps"] >= 3
    assert (tmp_path / "out" / "evaluation.png").is_file() and "non-finite" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "nowhere.npz"], "There is no file"),
        (["--data", "one.npy"], "one time only"),
        (["--data", "wide.npy"], "the model was made for"),
        (["--data", "nan.npy"], "has a NaN in sample 1, step 2"),
        (["--data", "two.npz"], "say which are the trajectories with --key"),
        (["--data", "two.npz", "--key", "c"], "Unknown array"),
        (["--data", "good.npy", "--samples", "0"], "must be at least 1"),
        (["--data", "good.npy", "--tau", "-1"], "must be positive"),
        (["--data", "good.npy", "--out", "full", "--force"], "is not an earlier evaluation"),
        (["--data", "good.npy", "--layout", "sample space"], "has no time"),
    ],
)
def test_wrong_input_says_what_to_do_and_leaves_nothing(place, options, message, tmp_path, monkeypatch):
    folder, still = place
    monkeypatch.chdir(tmp_path)
    nan = still.copy()
    nan[1, 2] = np.nan
    np.save("good.npy", still)
    np.save("one.npy", still[:, :1])
    np.save("wide.npy", np.repeat(still, 2, axis=2))
    np.save("nan.npy", nan)
    np.savez("two.npz", a=still, b=still)
    os.mkdir("full")
    before = sorted(os.listdir())
    done = invoke(folder / "grow.st", *options)
    assert done.exit_code == 2 and message in " ".join(done.stderr.split()), done.stderr
    assert sorted(os.listdir()) == before
