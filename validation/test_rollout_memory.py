"""A gradient through 10,000 steps fits in a gigabyte, and a million streamed steps in bounded memory."""

import subprocess
import sys

import numpy as np

LIMIT = 10**9
# A fresh process measures itself: the largest memory it ever had resident.
GRADIENT = """
import resource
import jax, jax.numpy as jnp, numpy as np
import sgno

step = sgno.load("ks1d/sgno")
u0 = jnp.asarray(np.load("u0.npy"))
steps = 10_000
last = lambda u: sgno.rollout(step, u, steps, every=steps)[-1]
target = last(u0)
gradient = jax.grad(lambda u: jnp.mean((last(u) - 0.9 * target) ** 2))(u0)
assert gradient.shape == u0.shape
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
STREAM = """
import resource, sys
import jax.numpy as jnp, numpy as np
import sgno

decay = lambda u: 0.999 * jnp.roll(u, 1, -1)
energy = lambda u: jnp.mean(u**2)
for block in sgno.stream(decay, np.ones((1, 64), np.float32), int(sys.argv[1]), observe=(energy,)):
    assert len(block.states) == len(block.seen[0]) <= 4096
assert block.step == int(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak(program: str, folder, *arguments: object) -> int:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return int(done.stdout)


def test_a_gradient_through_ten_thousand_steps_fits_in_a_gigabyte(tmp_path):
    x = 2 * np.pi * np.arange(160) / 160
    np.save(tmp_path / "u0.npy", (np.cos(x) + np.sin(3 * x))[None].astype(np.float32))
    assert peak(GRADIENT, tmp_path) < LIMIT


def test_a_million_streamed_steps_need_no_more_memory_than_ten_thousand(tmp_path):
    few, many = (peak(STREAM, tmp_path, steps) for steps in (10_000, 1_000_000))
    assert many < few + 50 * 10**6
