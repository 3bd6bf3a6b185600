"""The exported PyTorch module: the same numbers to 1e-5, alone in a process without jax and sgno."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import sgno
from sgno.export import export_torch
from sgno.export.torch_step import load
from sgno.grid import Grid
from sgno.nn.linear import LinearConfig
from sgno.nn.normalised import NormalisedConfig
from sgno.nn.sgno import SGNOConfig
from sgno.sgno_x import SGNOXConfig
from sgno.step import batch, prepare

GRIDS = {1: Grid(1, (32,)), 2: Grid(2, (14, 12)), 3: Grid(1, (8, 8, 10))}


def steps():
    """One of each kind and of each branch, with weights away from their start."""
    for d, grid in GRIDS.items():
        yield f"sgno{d}d", SGNOConfig(3, 4 if d < 3 else 3, 2 if d == 1 else 1), grid
        yield f"sgno-x{d}d", SGNOXConfig(start="random", stages=(1, 2, 4)[d - 1], max_terms=2), grid
    yield "residual", SGNOConfig(3, 4, 1, coordinates="periodic", update="residual"), GRIDS[1]
    yield "pointwise", SGNOConfig(3, 4, 2, update="pointwise"), GRIDS[2]
    yield "nocorrection", SGNOConfig(3, 4, 1, coordinates="none", correction="none"), GRIDS[2]
    yield "linear", LinearConfig(), GRIDS[2]
    yield "normalised", NormalisedConfig(LinearConfig(), (0.5, -1.0), (2.0, 3.0)), GRIDS[2]


CASES = {name: (config, grid) for name, config, grid in steps()}


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(name, tmp_path):
    config, grid = CASES[name]
    step = eqx.filter_jit(lambda: config.build(grid, key=jax.random.key(1)))()
    rng = np.random.default_rng(2)
    shake = lambda x: x + 0.1 * rng.normal(size=x.shape).astype(x.dtype) if eqx.is_inexact_array(x) else x
    step = jax.tree.map(shake, step)
    export_torch(tmp_path / "out", step, grid)
    u = rng.normal(size=(3, *grid.shape)).astype(np.float32)
    expected = np.asarray(eqx.filter_jit(lambda step, u: batch(prepare(step), u))(step, u))
    module = load(tmp_path / "out")
    found = module(torch.from_numpy(u)).detach().numpy()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    with pytest.raises(ValueError, match="this step takes"):
        module(torch.zeros(2, 5, 7))


@pytest.mark.parametrize("name", ["ks1d/sgno", "ks1d/sgno-x"])
def test_shipped_steps_run_alone(name, tmp_path):
    step = sgno.load(name)
    export_torch(tmp_path / "out", step, step.grid)
    x = np.linspace(0, 2 * np.pi, 160, endpoint=False)
    u = (np.sin(3 * x) + np.cos(5 * x + 1)).astype(np.float32)[None, None]
    np.save(tmp_path / "u.npy", u)
    code = (
        "import sys, numpy, torch; from step import load; step = load(); "
        "u = torch.from_numpy(numpy.load('../u.npy')); "
        "states = [u := step(u).detach() for _ in range(20)]; "
        "numpy.save('../found.npy', torch.cat(states).numpy()); "
        "assert not {'jax', 'equinox', 'sgno'} & set(sys.modules)"
    )
    alone = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", env=alone, check=True, timeout=300)
    expected = np.asarray(sgno.rollout(step, jnp.asarray(u[0]), 20))
    found = np.load(tmp_path / "found.npy")
    assert np.abs(found[0] - expected[0]).max() <= 1e-5 * np.abs(expected[0]).max()
    # Twenty steps of a chaotic equation let the rounding errors grow a little.
    assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()
