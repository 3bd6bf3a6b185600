"""Exports: the same numbers without this package, for any number of states, and clear refusals."""

import json

import equinox as eqx
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app
from sgno.errors import InputError
from sgno.export import export_stablehlo, export_torch
from sgno.grid import Grid
from sgno.registry import get_model
from sgno.step import batch, prepare
from sgno.weights import save


def invoke(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize("name", ["ks1d/sgno-x", "tiny-sgno", "conv"])
def test_stablehlo_gives_the_same_numbers_for_any_batch(name, tmp_path):
    if name == "ks1d/sgno-x":
        step, grid = sgno.load(name), Grid(1, (160,))
    elif name == "tiny-sgno":
        grid = Grid(2, (12,))
        step = sgno.SGNOConfig(3, 4, 1).build(sgno.Grid(2, (16,)), key=jax.random.key(0))
    else:
        grid = Grid(1, (16,))
        step = get_model("Conv;4;1;relu", 1).build(grid, key=jax.random.key(0))
    export_stablehlo(tmp_path / "step.stablehlo", step, grid)
    loaded = jax.export.deserialize(bytearray((tmp_path / "step.stablehlo").read_bytes()))
    assert loaded.in_avals[0].dtype == jnp.float32 and set(loaded.platforms) == {"cpu", "cuda", "tpu"}
    u = np.random.default_rng(0).normal(size=(3, *grid.shape)).astype(np.float32)
    expected = eqx.filter_jit(lambda step, u: batch(prepare(step), u))(step, u)
    for size in (1, 3):
        np.testing.assert_allclose(loaded.call(u[:size]), expected[:size], atol=2e-6, rtol=1e-5)


def test_the_command_writes_checks_and_refuses(tmp_path):
    out = tmp_path / "step.stablehlo"
    done = invoke("adv1d/sgno-x", "--to", "stablehlo", "--out", out, "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["largest_difference"] < 1e-6 and summary["bytes"] == out.stat().st_size
    again = invoke("adv1d/sgno-x", "--to", "stablehlo", "--out", out)
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert invoke("adv1d/sgno-x", "--to", "stablehlo", "--out", out, "--force", "--no-check").exit_code == 0
    wrong = invoke("adv1d/sgno-x", "--to", "torch", "--out", out, "--force")
    assert wrong.exit_code == 2 and "was not written by an export" in wrong.stderr and out.is_file()
    assert invoke("adv1d/sgno-x", "--to", "keras", "--out", tmp_path / "x").exit_code == 2


def test_a_network_of_apebench_has_no_torch_form(tmp_path):
    grid, config = Grid(1, (16,)), get_model("Conv;4;1;relu", 1)
    step = config.build(grid, key=jax.random.key(0))
    with pytest.raises(InputError, match=r"has no PyTorch form: .* Export it with --to stablehlo"):
        export_torch(tmp_path / "out", step, grid)
    save(tmp_path / "conv.safetensors", step)
    done = invoke(tmp_path / "conv.safetensors", "--to", "torch", "--out", tmp_path / "out")
    assert done.exit_code == 2 and "has no PyTorch form" in done.stderr
    assert not (tmp_path / "out").exists()
