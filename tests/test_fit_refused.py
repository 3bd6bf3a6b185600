"""What a newcomer gets wrong: files and flags that cannot be fitted."""

import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from own_data import TINY, hdf5, invoke


@pytest.fixture
def place(tmp_path, monkeypatch, cache) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Each case: the file and how it is made, or the flags. Each must end in one line and exit code 2.
U = np.random.default_rng(0).normal(size=(6, 5, 1, 16)).astype(np.float32)


def spoilt(index, value, dtype: type[np.floating] = np.float32):
    changed = U.astype(dtype)
    changed[index] = value
    return changed


def cut(path, write, left: float):
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(left * len(whole))])


def npy(array):
    return lambda path: np.save(path, array)


def broken_zarr(path):
    zarr.create_array(str(path), data=U)
    (path / "zarr.json").write_text("{")


def missing_chunk_codec(path):
    zarr.create_array(str(path), data=U)
    for chunk in (path / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"not a chunk")


def header_lies(path):
    np.save(path, U)
    path.write_bytes(path.read_bytes().replace(b"(6, 5, 1, 16)", b"(9999, 5, 1, 16)", 1))


def object_npz(path):
    np.savez(path, u=np.array([np.zeros(3), np.zeros(4)], dtype=object), allow_pickle=True)


def bomb(path):
    """A few bytes whose archive says that they unpack to six gigabytes."""
    raw = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (6, 2**22, 1, 64)}
    np.lib.format.write_array_header_1_0(raw, header)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("u.npy", raw.getvalue() + bytes(1000))
        archive.filelist[0].file_size = 7 * 2**30


def same_name_twice(path):
    with zipfile.ZipFile(path, "w") as archive:
        for _ in range(2):
            archive.writestr("u.npy", b"")


def complex_times(path):
    np.save(path, U.astype(np.complex64))


FILES = {
    "rank one": ("a.npy", npy(U[0, 0, 0]), "has 1 axes"),
    "rank two": ("a.npy", npy(U[0, :, 0]), "has 2 axes"),
    "rank three": ("a.npy", npy(U[0]), '--layout "sample time space"'),
    "rank seven": ("a.npy", npy(U[..., None, None, None]), "leaves 4 for space"),
    "scalar": ("a.npy", npy(np.float32(1)), "has 0 axes"),
    "complex": ("a.npy", complex_times, "complex"),
    "text": ("a.npy", npy(np.full((6, 5, 1, 16), "a")), "trajectories are numbers"),
    "truth values": ("a.npy", npy(U > 0), "trajectories are numbers"),
    "dates": ("a.npy", npy(np.zeros((6, 5, 1, 16), "M8[s]")), "trajectories are numbers"),
    "table": ("a.npy", npy(np.zeros((6, 5, 1, 16), [("a", "f4"), ("b", "f4")])), "trajectories are numbers"),
    "objects": (
        "a.npy",
        lambda p: np.save(p, np.array([None, 1], dtype=object), allow_pickle=True),
        "Python objects",
    ),
    "no samples": ("a.npy", npy(U[:0]), "is empty"),
    "no times": ("a.npy", npy(U[:, :0]), "is empty"),
    "no channels": ("a.npy", npy(U[:, :, :0]), "is empty"),
    "no points": ("a.npy", npy(U[..., :0]), "is empty"),
    "one point": ("a.npy", npy(U[..., :1]), "at least two points"),
    "one time": ("a.npy", npy(U[:, :1]), "from one time to the next"),
    "one sample of two times": ("a.npy", npy(U[:1, :2]), "leave none to train on"),
    "NaN": ("a.npy", npy(spoilt((2, 3, 0, 4), np.nan)), "a NaN in sample 2, step 3"),
    "infinity": ("a.npy", npy(spoilt((2, 3, 0, 4), np.inf)), "an infinity in sample 2, step 3"),
    "minus infinity": ("a.npy", npy(spoilt((1, 0, 0, 4), -np.inf)), "an infinity in sample 1, step 0"),
    "beyond float32": ("a.npy", npy(spoilt((2, 3, 0, 4), 1e300, np.float64)), "beyond the largest float32"),
    "huge": ("a.npy", npy(U * np.float32(1e20)), "whose square leaves float32"),
    "empty file": ("a.npy", lambda p: p.touch(), "not a readable .npy"),
    "only magic": ("a.npy", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00"), "not a readable .npy"),
    "no npy": ("a.npy", lambda p: p.write_text("1, 2, 3"), "not a readable .npy"),
    "truncated": ("a.npy", lambda p: cut(p, npy(U), 0.5), "is truncated"),
    "false header": ("a.npy", header_lies, "is truncated"),
    "header with code": (
        "a.npy",
        lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').abort()".ljust(31) + b"\n"),
        "not a readable .npy",
    ),
    "a folder": ("a.npy", lambda p: p.mkdir(), "is a folder"),
    "missing": ("a.npy", lambda p: None, "There is no file"),
    "no zip": ("a.npz", lambda p: p.write_bytes(b"PK\x03\x04nothing"), "not a readable .npz"),
    "truncated zip": ("a.npz", lambda p: cut(p, lambda q: np.savez(q, u=U), 0.6), "not a readable .npz"),
    "empty zip": ("a.npz", lambda p: np.savez(p), "holds no array"),
    "several arrays": ("a.npz", lambda p: np.savez(p, v=U, w=U), "--key"),
    "object in zip": ("a.npz", object_npz, "Python objects"),
    "zip bomb": ("a.npz", bomb, "GB; at most"),
    "one name twice": ("a.npz", same_name_twice, "two arrays of one name"),
    "unreadable": ("a.npy", lambda p: p.symlink_to(p.name), "There is no file"),
    "mixed grids": ("a.npz", lambda p: np.savez(p, train=U, test=U[..., :8]), "the same channels and grid"),
    "mixed channels": (
        "a.npz",
        lambda p: np.savez(p, train=U, test=np.repeat(U, 2, axis=2)),
        "the same channels and grid",
    ),
    "test of one time": ("a.npz", lambda p: np.savez(p, train=U, test=U[:, :1]), "at least two times"),
    "truncated HDF5": ("a.h5", lambda p: cut(p, lambda q: hdf5(q, u=U), 0.5), "not a readable HDF5"),
    "no HDF5": ("a.h5", lambda p: p.write_text("no"), "not a readable HDF5"),
    "empty HDF5": ("a.h5", lambda p: hdf5(p), "holds no array"),
    "several in HDF5": ("a.hdf5", lambda p: hdf5(p, v=U, w=U), "--key"),
    "text in HDF5": ("a.h5", lambda p: hdf5(p, u=["a", "b"]), "trajectories are numbers"),
    "old MATLAB": ("a.mat", lambda p: p.write_bytes(b"MATLAB 5.0 MAT-file"), "-v7.3"),
    "damaged zarr": ("a.zarr", broken_zarr, "not a readable description of a zarr array"),
    "damaged chunks": ("a.zarr", missing_chunk_codec, "cannot be read at sample"),
    "no zarr": ("a.zarr", lambda p: p.mkdir(), "holds no array"),
    "another format": ("a.csv", lambda p: p.write_text("1,2"), "not of a known format"),
    "pickle": ("a.pkl", lambda p: p.write_bytes(b"\x80\x04."), "not of a known format"),
}
FLAGS = {
    "unknown word": (["--layout", "sample time room channel"], "the word 'room'"),
    "word twice": (["--layout", "sample time time space"], "names 'time' twice"),
    "no time in layout": (["--layout", "sample channel space"], "has no time"),
    "no space in layout": (["--layout", "sample time channel"], "either 'space' or"),
    "y without x": (["--layout", "sample time channel y"], "use 'x', 'x y'"),
    "too many words": (["--layout", "sample time channel x y"], "names 5"),
    "too few words": (["--layout", "time x"], "names 2"),
    "key of an npy": (["--key", "u"], "Leave it out"),
    "unknown model": (["--model", "sgn"], "Did you mean 'sgno'?"),
    "bad string": (["--model", "FNO;a;b"], "does not have the form"),
    "too many modes": (["--model", "FNO;12;18;4;gelu"], "needs at least 24 points"),
    "too many modes of sgno": (["--model", "sgno", "--set", "num_modes=9"], "needs at least 18 points"),
    "unknown setting": (["--set", "depth=3"], "Unknown setting"),
    "no setting": (["--set", "width"], "is not NAME=VALUE"),
    "unroll too long": (["--unroll", "9"], "too short for unroll=9"),
    "negative updates": (["--updates", "-1"], "must be at least 0"),
    "no seeds": (["--seeds", "0"], "at least one seed"),
    "all for testing": (["--test", "6"], "leave none to train on"),
    "negative part": (["--validation", "-0.1"], "is no part of the data"),
    "part and a half": (["--test", "1.5"], "is no part of the data"),
    "unknown units": (["--normalise", "max"], "Unknown normalisation"),
    "nan rate": (["--rate", "nan"], "must be positive"),
    "out is a file": (["--out", "a.npy"], "is a file"),
}


def refused(place: Path, arguments: list[str], message: str) -> None:
    before = sorted(place.rglob("*"))
    done = (
        invoke("fit", *arguments, "--model", TINY)
        if "--model" not in arguments
        else invoke("fit", *arguments)
    )
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert done.stdout == "" and len(lines) <= 2 and lines[-1].startswith("Error: "), done.output
    assert message in lines[-1] and "Traceback" not in done.output
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("case", FILES)
def test_a_malformed_file_is_one_line_and_leaves_nothing(place, case):
    name, write, message = FILES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(place / name)
    refused(place, [name], message)


@pytest.mark.parametrize("case", FLAGS)
def test_a_wrong_flag_is_one_line_and_leaves_nothing(place, case):
    np.save(place / "a.npy", U)
    arguments, message = FLAGS[case]
    refused(place, ["a.npy", *arguments], message)


def test_sixty_ways_to_go_wrong_are_tried():
    assert len(FILES) + len(FLAGS) >= 60 and len(FILES) >= 50


def test_files_of_different_grids_are_not_joined(place):
    np.save(place / "a.npy", U)
    np.save(place / "b.npy", U[..., :8])
    refused(place, ["a.npy", "b.npy"], "Fit files of one grid")


def test_a_missing_package_says_what_to_install(place, monkeypatch):
    hdf5(place / "a.h5", u=U)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    refused(place, ["a.h5"], "pip install 'sgno[data]'")
