"""Arrays in HDF5 files and zarr folders, through packages of the extra `data`.

Both formats can lead out of the file: to other files by links, external and virtual storage, to code by
names of codecs. So an array is judged by its description first, and opened only if all of that is on a list.
"""

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError, require
from sgno.io.limits import check_chunks, check_claim, check_numbers

HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".nc", ".mat")
# The filters of HDF5 itself (deflate, shuffle, fletcher32, szip, nbit, scaleoffset), and lzf, blosc, lz4,
# bitshuffle, zstd and blosc2 by their registered numbers. None of them runs what it finds in a file.
_HDF5_FILTERS = {1, 2, 3, 4, 5, 6, 32000, 32001, 32004, 32008, 32015, 32026}
_HDF5_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)
_ZARR_MARKS = (".zarray", "zarr.json")
# Codecs that turn bytes into bytes or numbers into numbers. Not among them: pickle, json2, msgpack2, vlen-*,
# which make Python objects.
_ZARR_CODECS = {
    *(
        "blosc",
        "zlib",
        "gzip",
        "zstd",
        "lz4",
        "lzma",
        "bz2",
        "shuffle",
        "delta",
        "fixedscaleoffset",
        "bitround",
    ),
    *("bytes", "transpose", "crc32c", "adler32", "crc32", "fletcher32", "sharding_indexed"),
}
_ZARR_DTYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
# A description is settings; anything larger is not one.
_DESCRIPTION_BYTES = 2**24
_DEPTH = 16


def hdf5_names(path: Path) -> list[str]:
    """The data sets of an HDF5 file by their path inside it; links are not followed.

    **Raises:** `InputError` if h5py is not installed or the file cannot be read.
    """
    h5py = require("h5py", "data", f"Reading {path}")
    found: list[str] = []

    def collect(name: bytes, info: Any) -> None:
        if info.type == h5py.h5o.TYPE_DATASET:
            found.append(name.decode("utf-8", "surrogateescape"))

    try:
        with h5py.File(path, "r") as file:
            h5py.h5o.visit(file.id, collect, info=True)
    except _HDF5_ERRORS as error:
        raise _unreadable(path, error) from error
    return found


def open_hdf5(path: Path, name: str) -> Any:
    """One data set of an HDF5 file, to be sliced.

    **Raises:** `InputError` if it does not hold numbers, lies in other files, needs a filter that is not
    on the list, or claims more than the file holds.
    """
    h5py = require("h5py", "data", f"Reading {path}")
    try:
        found = h5py.h5d.open(h5py.File(path, "r").id, name.encode("utf-8", "surrogateescape"))
        plan = found.get_create_plist()
        elsewhere = plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count() > 0
        filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        if elsewhere:
            raise InputError(
                f"'{name}' in {path} keeps its numbers in other files, which are not opened. Copy all into "
                "one file and give that."
            )
        if unknown := [number for number in filters if number not in _HDF5_FILTERS]:
            raise InputError(
                f"'{name}' in {path} needs the HDF5 filter {unknown[0]}, which is not used here. Save it "
                "again with gzip or without compression."
            )
        array = h5py.Dataset(found)
        dtype = check_numbers(path, name, array.dtype)
        check_chunks(path, name, array.chunks or (), dtype)
        stored = min(found.get_storage_size(), path.stat().st_size)
        check_claim(path, name, math.prod(array.shape or ()) * dtype.itemsize, stored)
    except InputError:
        raise
    except _HDF5_ERRORS as error:
        raise _unreadable(path, error) from error
    return array


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:160]
    advice = " MATLAB must save with '-v7.3'." if path.suffix == ".mat" else ""
    return InputError(f"{path} is not a readable HDF5 file ({reason}).{advice} Copy or save it again.")


def is_zarr(path: Path) -> bool:
    """Whether a path is meant as zarr: by its name, or by what lies in the folder."""
    marks = (".zgroup", *_ZARR_MARKS)
    return path.suffix == ".zarr" or (path.is_dir() and any((path / mark).is_file() for mark in marks))


def zarr_names(path: Path) -> list[str]:
    """The arrays of a zarr folder by name; a folder that is an array itself has the name `""`.

    **Raises:** `InputError` if there is no such folder, or one of its descriptions cannot be read.
    """
    if not path.is_dir():
        raise InputError(f"{path} is not a readable zarr folder (it is a file). Save it again.")
    if _is_array(path):
        return [""]
    return list(_members(path, path))


def open_zarr(path: Path, name: str) -> Any:
    """One array of a zarr folder, to be sliced.

    **Raises:** `InputError` if zarr is not installed, or the array does not hold numbers, has a link in
    its folder, needs a codec that is not on the list, or claims more than its files hold.
    """
    zarr = require("zarr", "data", f"Reading {path}")
    folder = path / name if name else path
    name = name or folder.name
    version, (shape, chunks, dtype) = _described(folder, name)
    check_chunks(folder, name, chunks, dtype)
    check_claim(folder, name, math.prod(shape) * dtype.itemsize, sum(_sizes(folder)))
    major = int(zarr.__version__.partition(".")[0])
    try:
        return zarr.open_array(
            str(folder), mode="r", **{"zarr_version" if major < 3 else "zarr_format": version}
        )
    except Exception as error:  # Stores, codecs and JSON each raise errors of their own here.
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"{folder} is not a readable zarr folder ({reason}). Save it again.") from error


def _members(root: Path, folder: Path, depth: int = 0) -> Iterator[str]:
    """The arrays below a folder. A zarr has few levels; folders of links are not entered."""
    if depth > _DEPTH:
        raise InputError(f"{root} has folders more than {_DEPTH} deep. Give the folder of the array itself.")
    for child in sorted(child for child in folder.iterdir() if not child.is_symlink() and child.is_dir()):
        if _is_array(child):
            yield child.relative_to(root).as_posix()
        elif _is_group(child):
            yield from _members(root, child, depth + 1)


def _is_array(folder: Path) -> bool:
    if (folder / ".zarray").is_file():
        return True
    return _is_group(folder, "zarr.json") and _read(folder / "zarr.json").get("node_type") == "array"


def _is_group(folder: Path, *marks: str) -> bool:
    return any((folder / mark).is_file() for mark in marks or (".zgroup", "zarr.json"))


def _read(path: Path) -> dict[str, Any]:
    """A description, which is a JSON object in a file of its own."""
    try:
        if path.is_symlink() or path.stat().st_size > _DESCRIPTION_BYTES:
            raise ValueError("a link, or too large")
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not a readable description of a zarr array ({error}). Save it again."
        ) from error
    return content


def _described(folder: Path, name: str) -> tuple[int, tuple[tuple[int, ...], tuple[int, ...], np.dtype]]:
    """The version of the format, and shape, chunks and dtype of an array, once its codecs are on the list."""
    marks = [mark for mark in _ZARR_MARKS if (folder / mark).is_file()]
    if len(marks) != 1:
        raise InputError(
            f"{folder} is not a readable zarr folder: it has {len(marks)} descriptions. Save it again."
        )
    content = _read(folder / marks[0])
    try:
        described = _version_2 if marks[0] == ".zarray" else _version_3
        return (2 if marks[0] == ".zarray" else 3), described(folder, name, content)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise InputError(
            f"{folder / marks[0]} does not describe a zarr array ({reason}). Save it again."
        ) from error


def _version_2(folder: Path, name: str, content: Mapping[str, Any]):
    codecs = [*(content.get("filters") or []), *filter(None, [content.get("compressor")])]
    for codec in codecs:
        _check_codec(folder, name, codec["id"])
    if not isinstance(content["dtype"], str) or not re.fullmatch(r"[<>|][biufc]\d{1,2}", content["dtype"]):
        raise InputError(
            f"'{name}' in {folder} holds {str(content['dtype'])[:80]!r}, but trajectories are numbers. "
            "Save it as float32."
        )
    dtype = check_numbers(folder, name, content["dtype"])
    return _sides(content["shape"]), _sides(content["chunks"], least=1), dtype


def _version_3(folder: Path, name: str, content: Mapping[str, Any]):
    if content.get("storage_transformers"):
        raise InputError(
            f"'{name}' in {folder} has storage transformers, which are not used here. Save it again."
        )
    chunks = _sides(content["chunk_grid"]["configuration"]["chunk_shape"], least=1)
    for codec in content["codecs"]:
        chunks = _check_codecs(folder, name, codec, chunks)
    if content["data_type"] not in _ZARR_DTYPES:
        raise InputError(
            f"'{name}' in {folder} holds {str(content['data_type'])[:80]!r}, but trajectories are numbers. "
            "Save it as float32."
        )
    return _sides(content["shape"]), chunks, check_numbers(folder, name, content["data_type"])


def _check_codecs(folder: Path, name: str, codec: Any, chunks: tuple[int, ...]) -> tuple[int, ...]:
    """What is unpacked at once: chunks, or where these are shards the chunks inside them."""
    _check_codec(folder, name, codec if isinstance(codec, str) else codec["name"])
    inner = codec.get("configuration") or {} if isinstance(codec, dict) else {}
    for place in ("codecs", "index_codecs"):
        for part in inner.get(place) or []:
            _check_codecs(folder, name, part, ())
    return _sides(inner["chunk_shape"], least=1) if "chunk_shape" in inner else chunks


def _check_codec(folder: Path, name: str, codec: Any) -> None:
    if not isinstance(codec, str) or codec.removeprefix("numcodecs.") not in _ZARR_CODECS:
        raise InputError(
            f"'{name}' in {folder} is packed by the codec {str(codec)[:40]!r}, which is not used here. Save "
            "it again with blosc, zstd or gzip."
        )


def _sides(numbers: Any, least: int = 0) -> tuple[int, ...]:
    if not isinstance(numbers, list) or not all(type(n) is int and n >= least for n in numbers):
        raise ValueError(f"{str(numbers)[:60]} for the sides of a box")
    return tuple(numbers)


def _sizes(folder: Path) -> Iterator[int]:
    """The sizes of the files below a folder, which holds nothing but files and folders."""
    for place, folders, files in os.walk(folder):
        for child in (Path(place) / name for name in (*folders, *files)):
            mode = child.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise InputError(
                    f"{child} is a link or no file, and would lead out of the zarr folder. Put the file "
                    "itself there."
                )
        yield from ((Path(place) / name).lstat().st_size for name in files)
