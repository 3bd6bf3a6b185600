"""Containers and atomic writes: damage is noticed, nothing half-written stays."""

import json
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import sgno
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.commit import new_folder, write_bytes
from sgno.io.files import content_id, load_arrays, save_arrays, write_json
from sgno.lab.zoo import find
from sgno.nn.linear import LinearConfig
from sgno.registry import get_model
from sgno.weights import read_provenance

# Weights of ks1d/sgno-x as version 0.1 wrote them.
OLD = Path(__file__).parent / "files" / "version-0.1.sgno"
RESULTS = Path(__file__).parent.parent / "results"
ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 2)),
    "flag": np.asarray(True),
}


def test_round_trip(tmp_path):
    save_arrays(tmp_path / "x.safetensors", {"note": "ü"}, ARRAYS)
    meta, arrays = load_arrays(tmp_path / "x.safetensors")
    assert meta == {"note": "ü"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_of_one_byte_is_noticed_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flip") / "x.safetensors"
    save_arrays(path, {"note": "x"}, ARRAYS)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        read = load_arrays(path)
    except InputError:
        return
    # Padding of the header may change; whatever is believed is what was written.
    assert read.meta == {"note": "x"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(read.arrays[name], array)
        assert read.arrays[name].dtype == array.dtype


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_truncation_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "x.safetensors"
    save_arrays(path, {}, {"a": ARRAYS["a"]})
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(InputError):
        load_arrays(path)


@pytest.mark.parametrize(
    "header",
    [
        {},
        [],
        {"format": "sgno-arrays", "version": 99, "meta": {}, "arrays": []},
        {"format": "sgno-arrays", "version": 1, "meta": {}, "arrays": [{}]},
        {"format": "sgno-arrays", "version": 1, "meta": {}, "arrays": [[1]]},
        {
            "format": "sgno-arrays",
            "version": 1,
            "meta": {},
            "arrays": [{"name": "a", "dtype": "object", "shape": [1], "offset": 0, "crc32": 0}],
        },
        {
            "format": "sgno-arrays",
            "version": 1,
            "meta": {},
            "arrays": [{"name": "a", "dtype": "float32", "shape": [10**12, 10**12], "offset": 0, "crc32": 0}],
        },
        {
            "format": "sgno-arrays",
            "version": 1,
            "meta": {},
            "arrays": [{"name": "a", "dtype": "float32", "shape": [-1], "offset": 0, "crc32": 0}],
        },
    ],
)
def test_malformed_headers_of_version_0_1_are_refused_without_allocating(tmp_path, header):
    (tmp_path / "x.sgno").write_bytes(json.dumps(header).encode() + b"\n1234")
    with pytest.raises(InputError):
        load_arrays(tmp_path / "x.sgno")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_to_a_file_of_version_0_1_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("old") / "x.sgno"
    sound = load_arrays(OLD)
    content = bytearray(OLD.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    path.write_bytes(content)
    try:
        read = load_arrays(path)
    except InputError:
        return
    assert read.meta == sound.meta
    for name, array in sound.arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)


def test_every_array_file_of_the_published_results_reads():
    files = sorted(RESULTS.rglob("*.safetensors"))
    assert len(files) >= len([*RESULTS.rglob("record.json")]) > 300
    assert all(load_arrays(path).arrays for path in files)


def test_a_file_of_somebody_else_is_refused(tmp_path):
    safetensors.numpy.save_file(ARRAYS, tmp_path / "x.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"not written by sgno.*Give a file of `sgno\.save`"):
        load_arrays(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="has dtype complex128, but only"):
        save_arrays(tmp_path / "y.safetensors", {}, {"a": np.zeros(2, complex)})


class Own(eqx.Module):
    """A step of a user: arrays, a number, a static setting."""

    w: jax.Array
    table: np.ndarray
    rate: float
    name: str = eqx.field(static=True, default="own")

    def __call__(self, u):
        return self.rate * self.w * u + self.table[0]


def test_any_module_saves_and_loads_into_one_like_it(tmp_path):
    path = tmp_path / "own.safetensors"
    step = Own(jnp.arange(4.0), np.ones(2), 0.25)
    sgno.save(path, step, {"note": "mine"})
    loaded = sgno.load(path, like=Own(jnp.zeros(4), np.zeros(2), 0.0))
    assert eqx.tree_equal(loaded, step) and type(loaded.rate) is float
    assert read_provenance(path) == {"note": "mine"}
    with pytest.raises(InputError, match=r"the arrays of a Own.*Pass like="):
        sgno.load(path)
    with pytest.raises(InputError, match=r"float32\[4\], but this model has float32\[5\]"):
        sgno.load(path, like=Own(jnp.zeros(5), np.zeros(2), 0.0))
    with pytest.raises(InputError, match="function has no weights to save"):
        sgno.save(path, lambda u: u)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    step = LinearConfig().build(Grid(1, (8,)))
    broken = eqx.tree_at(lambda s: s.M_real, step, step.M_real.at[0, 0, 2].set(jnp.nan))
    sgno.save(tmp_path / "w.safetensors", broken)
    with pytest.raises(InputError, match=r"not finite \(\.M_real\).*diverged"):
        sgno.load(tmp_path / "w.safetensors")


def test_weights_of_version_0_1_load(tmp_path):
    old, new = sgno.load(OLD), sgno.load("ks1d/sgno-x")
    assert eqx.tree_equal(old, new) and old.config == new.config and old.grid == new.grid
    assert read_provenance(OLD) == read_provenance(find("ks1d/sgno-x"))


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path):
    target = tmp_path / "x.json"
    write_json(target, {"old": 1})

    def broken():
        yield b"half"
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_bytes(target, broken())
    assert json.loads(target.read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """The kernel refuses to write past a limit, as it does on a full disk."""
    code = (
        "import numpy as np, resource, signal, sys\n"
        "from pathlib import Path; from sgno.io.files import save_arrays\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "save_arrays(Path(sys.argv[1]) / 'x.safetensors', {}, {'a': np.zeros(100_000)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode != 0 and "OSError" in done.stderr
    assert os.listdir(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 10_000


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError), new_folder(tmp_path / "job") as beside:
        (beside / "part").write_text("half")
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with new_folder(tmp_path / "job") as beside:
        (beside / "part").write_text("whole")
    with new_folder(tmp_path / "job") as beside:
        (beside / "part").write_text("second")
    assert (tmp_path / "job" / "part").read_text() == "whole"
    assert os.listdir(tmp_path) == ["job"]


def test_an_unwritable_place_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot create the folder"):
        write_json(tmp_path / "file" / "x.json", {})


def test_ids_come_from_content_alone():
    assert content_id({"a": 1, "b": [1, 2]}) == content_id({"b": [1, 2], "a": 1})
    assert content_id({"a": 1}) != content_id({"a": 2})
    assert content_id({"a": 1}) == "015abd7f5cc57a2d"


def test_entries_of_version_0_1_that_name_the_same_bytes_are_refused(tmp_path):
    body = bytes(1000)
    entry = {"dtype": "uint8", "shape": [1000], "offset": 0, "crc32": zlib.crc32(body)}
    header = {"format": "sgno-arrays", "version": 1, "meta": {}}
    header["arrays"] = [{"name": str(i), **entry} for i in range(2)]
    (tmp_path / "x.sgno").write_bytes(json.dumps(header).encode() + b"\n" + body)
    with pytest.raises(InputError, match="its arrays overlap"):
        load_arrays(tmp_path / "x.sgno")


def test_a_small_file_is_not_believed_to_be_for_a_huge_grid(tmp_path):
    path = tmp_path / "w.safetensors"
    sgno.save(path, get_model("sgno-x", 2).build(Grid(1, (8, 8)), key=jax.random.key(0)))
    meta, arrays = load_arrays(path)
    save_arrays(path, {**meta, "grid": {"channels": 1, "points": [2**14, 2**14]}}, arrays)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"but holds only \d+ weights"):
        sgno.load(path)
    # In kilobytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10_000


@pytest.mark.parametrize("provenance", [[], "x", {"job": []}, {"job": {"task": ["ks1d"]}}])
def test_a_provenance_of_another_shape_is_refused(tmp_path, provenance):
    path = tmp_path / "w.safetensors"
    save_arrays(path, {"provenance": provenance}, {})
    with pytest.raises(InputError, match="its provenance is none"):
        read_provenance(path)
