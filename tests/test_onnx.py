"""ONNX: the same numbers in ONNX Runtime as in JAX, for every kind of model and any number of states."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app
from sgno.errors import InputError
from sgno.export.onnx import export_onnx
from sgno.grid import Grid
from sgno.registry import get_model

KEY = jax.random.key(0)
SMALL = ["Conv;4;1;relu", "Res;4;1;relu", "UNet;4;1;relu", "Dil;2;4;1;relu", "FNO;3;4;1;gelu", "linear"]


def largest_difference(path, step, shape) -> float:
    session = onnxruntime.InferenceSession(path)
    u = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    expected = np.asarray(jax.jit(jax.vmap(step))(u))
    found = [np.asarray(session.run(None, {"u": u[:size]})[0]) for size in (1, 3)]
    return max(float(np.abs(f - expected[: len(f)]).max()) for f in found) / np.abs(expected).max()


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_every_network_gives_the_same_numbers(name, dim, tmp_path):
    grid = Grid(2, (8,) * dim)
    step = get_model(name, dim).build(grid, key=KEY)
    export_onnx(tmp_path / "step.onnx", step, grid)
    assert largest_difference(tmp_path / "step.onnx", step, grid.shape) < 1e-5


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_sgno_gives_the_same_numbers(dim, tmp_path):
    grid = Grid(2, (8, 10, 12)[:dim])
    step = sgno.SGNOConfig(3, 3, 2).build(grid, key=KEY)
    export_onnx(tmp_path / "step.onnx", step, grid)
    assert largest_difference(tmp_path / "step.onnx", step, grid.shape) < 1e-5


def test_the_command_writes_a_model_with_its_grid_and_origin(tmp_path):
    out = tmp_path / "step.onnx"
    done = CliRunner().invoke(app, ["export", "ks1d/sgno-x", "--to", "onnx", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["largest_difference"] < 1e-5
    kept = onnxruntime.InferenceSession(out).get_modelmeta().custom_metadata_map
    assert json.loads(kept["grid"]) == {"channels": 1, "points": [160]}
    assert json.loads(kept["weights"]) == "ks1d/sgno-x"
    assert largest_difference(out, sgno.load("ks1d/sgno-x"), (1, 160)) < 1e-5


FUNCTIONS = {
    "complex arithmetic": lambda u: jnp.abs(jnp.conj(u + 2j * u) / (1 + 1j * u)) + jnp.real(1j * u) ** 2,
    "fft and ifft": lambda u: jnp.fft.ifft(jnp.fft.fft(u) * 1j).imag,
    "odd rfft": lambda u: jnp.fft.irfft(jnp.fft.rfft(u[:, :5]), 5).sum() + u,
    "moving entries": lambda u: jnp.roll(u[:, ::-1], 2, axis=1).at[:, 1:3].set(0.5).at[:, 4].add(u[:, 0]),
    "padding and stacking": lambda u: jnp.stack([jnp.pad(u[0], (2, 1), constant_values=3.0)[1:-2], u[1]]),
    "a loop": lambda u: jax.lax.scan(lambda c, x: (jnp.tanh(c + x), c.mean()), u, jnp.arange(3.0))[0],
    "choices": lambda u: jnp.where(jnp.isnan(u) | (u > 0.3), jnp.clip(u, -1, 0.5), jnp.sqrt(jnp.abs(u))),
    "products of states": lambda u: u @ u.T @ u + jnp.einsum("ci,di->ci", u, u) - u.max() * u.min(),
    "a result that ignores the state": lambda u: jnp.ones_like(u),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_plain_functions_are_translated_too(name, tmp_path):
    step = FUNCTIONS[name]
    export_onnx(tmp_path / "step.onnx", step, Grid(2, (8,)))
    assert largest_difference(tmp_path / "step.onnx", step, (2, 8)) < 1e-5


def test_what_cannot_be_translated_is_refused(tmp_path):
    with pytest.raises(InputError, match="no translation to ONNX"):
        export_onnx(tmp_path / "step.onnx", lambda u: jnp.sort(u), Grid(1, (8,)))
    with pytest.raises(InputError, match="cannot be exported for states of shape"):
        export_onnx(tmp_path / "step.onnx", sgno.load("ks1d/sgno"), Grid(1, (8,)))
    assert not (tmp_path / "step.onnx").exists()
