"""A small solver that is not APEBench's, and how tests fit to its trajectories."""

import json

import h5py
import numpy as np
from typer.testing import CliRunner

from sgno.cli.app import app

TINY = "Conv;2;1;relu"


def burgers(samples: int, times: int, n: int = 32, viscosity: float = 0.1, dt: float = 0.1) -> np.ndarray:
    """u_t = -u u_x + nu u_xx on [0, 2 pi): integrating factor, RK4, two thirds of the modes, numpy alone."""
    rng = np.random.default_rng(0)
    k, x = np.fft.rfftfreq(n, 1 / n), 2 * np.pi * np.arange(n) / n
    substeps, kept = 10, k < n / 3
    h = dt / substeps
    whole, half = np.exp(-viscosity * k**2 * h), np.exp(-viscosity * k**2 * h / 2)
    waves = [
        rng.normal(size=(samples, 1)) / m * np.sin(m * x + rng.uniform(0, 7, (samples, 1))) for m in (1, 2, 3)
    ]

    def f(v):
        return -0.5j * k * kept * np.fft.rfft(np.fft.irfft(v * kept, n) ** 2)

    v = np.fft.rfft(sum(waves))
    states = [v]
    for _ in range(times - 1):
        for _ in range(substeps):
            a = h * f(v)
            b = h * f(half * (v + a / 2))
            c = h * f(half * v + b / 2)
            d = h * f(whole * v + half * c)
            v = whole * v + (whole * a + 2 * half * (b + c) + d) / 6
        states.append(v)
    return np.fft.irfft(np.stack(states, 1), n)[:, :, None].astype(np.float32)


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fitted(*arguments) -> dict:
    done = invoke("fit", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


def hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
