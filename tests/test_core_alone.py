"""The core works where nothing of the extras is installed, and what needs an extra names it in one line."""

import subprocess
import sys

# A finder in front of all others, which knows none of these packages: as if they were not installed.
BLOCK = """
import sys

EXTRAS = {
    "apebench", "exponax", "pdequinox", "trainax", "matplotlib", "plotly", "jinja2", "h5py", "zarr",
    "numcodecs", "distributed", "dask", "onnx", "onnxruntime", "torch", "flatbuffers",
    "tensorboardX", "wandb", "pysindy", "pydmd", "opinf", "sklearn", "pandas", "psutil",
}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())

import importlib.metadata
known = importlib.metadata.Distribution.from_name

def from_name(name):
    if name in EXTRAS:
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)

importlib.metadata.Distribution.from_name = from_name
"""

USE = """
import os
os.environ["SGNO_CACHE"] = "cache"
import numpy as np, jax, jax.numpy as jnp, optax, sgno

rng = np.random.default_rng(0)
x = np.arange(32) * 2 * np.pi / 32
waves = sum(rng.normal(size=(6, 1, 1)) * np.sin(k * (x + rng.uniform(0, 6, (6, 1, 1)))) for k in (1, 2, 3))
truth = np.stack([np.roll(waves, t, axis=-1) for t in range(8)], 1).astype(np.float32)
np.save("own.npy", truth)

fitted = sgno.fit("own.npy", "linear", out="runs")
after = sgno.rollout(fitted.step, truth[0, 0], 5)
assert np.abs(np.asarray(after[-1]) - truth[0, 5]).max() < 1e-3

model = sgno.SGNOConfig(3, 4, 1).build(sgno.Grid(1, (32,)), key=jax.random.PRNGKey(0))
trained = sgno.train(model, truth, optimizer=optax.adam(1e-3), updates=2, key=jax.random.PRNGKey(1)).step
sgno.save("own.safetensors", trained)
again = sgno.load("own.safetensors")
assert jnp.array_equal(sgno.rollout(again, truth[0, 0], 3), sgno.rollout(trained, truth[0, 0], 3))

missing = {
    "paper": lambda: sgno.load_trajectories(sgno.get_task("ks1d")),
    "data": lambda: sgno.fit("own.h5", "linear"),
    "cluster": lambda: __import__("sgno.lab.cluster").lab.cluster.DaskCluster("local"),
}
open("own.h5", "wb").write(b"\\x89HDF\\r\\n\\x1a\\n" + bytes(64))
for extra, use in missing.items():
    try:
        use()
    except sgno.InputError as error:
        assert f"pip install 'sgno[{extra}]'" in str(error), error
        assert "\\n" not in str(error)
    else:
        raise AssertionError(f"nothing needed the extra {extra}")
loaded = sorted(EXTRAS & {name.partition(".")[0] for name in sys.modules})
assert not loaded, loaded
print("whole")
"""

COMMANDS = """
import contextlib, io, sys
from sgno.cli import main

for arguments, extra in (
    (["zoo"], None),
    (["rollout", "own.safetensors", "--initial", "own.npy", "--steps", "2", "--out", "a.h5"], "data"),
    (["export", "own.safetensors", "--to", "onnx", "--out", "a.onnx"], "onnx"),
    (["report", "runs", "--out", "page.html"], "report"),
):
    sys.argv, said = ["sgno", *arguments], io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code
    text = " ".join(said.getvalue().split())
    if extra is None:
        assert not code, text
    else:
        assert code == 2 and f"pip install 'sgno[{extra}]'" in text, (arguments, code, text)
print("whole")
"""


def run(program: str, folder) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)
    assert done.stdout.strip().endswith("whole"), done.stdout + done.stderr


def test_the_core_needs_no_extra_and_extras_are_named(tmp_path):
    run(BLOCK + USE, tmp_path)
    run(BLOCK + COMMANDS, tmp_path)
