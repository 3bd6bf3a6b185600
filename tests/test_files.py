"""Containers and atomic writes: damage is noticed, nothing half-written stays."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgno.errors import InputError
from sgno.io.files import content_id, load_arrays, new_folder, save_arrays, write_bytes, write_json

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 2)),
    "flag": np.asarray(True),
}


def test_round_trip(tmp_path):
    save_arrays(tmp_path / "x.sgno", {"note": "ü"}, ARRAYS)
    meta, arrays = load_arrays(tmp_path / "x.sgno")
    assert meta == {"note": "ü"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_of_one_byte_is_noticed_or_harmless(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flip") / "x.sgno"
    save_arrays(path, {"note": "x"}, ARRAYS)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        load_arrays(path)
    except InputError:
        return
    body = content.index(b"\n") + 1
    assert position < body, "a damaged array was believed"


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_truncation_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "x.sgno"
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
def test_malformed_headers_are_refused_without_allocating(tmp_path, header):
    (tmp_path / "x.sgno").write_bytes(json.dumps(header).encode() + b"\n1234")
    with pytest.raises(InputError):
        load_arrays(tmp_path / "x.sgno")


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
        "save_arrays(Path(sys.argv[1]) / 'x.sgno', {}, {'a': np.zeros(100_000)})\n"
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
