"""Arrays in HDF5 files and zarr folders, through packages of the extra `data`."""

import math
from pathlib import Path
from typing import Any

from sgno.errors import InputError, require

HDF5_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".nc", ".mat")
# A chunk is unpacked whole, whatever part of it is asked for.
_CHUNK_LIMIT = 2**30


def hdf5_arrays(path: Path) -> dict[str, Any]:
    """The data sets of an HDF5 file by their path inside it.

    **Raises:** `InputError` if h5py is not installed or the file cannot be read.
    """
    h5py = require("h5py", "data", f"Reading {path}")
    found = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    try:
        h5py.File(path, "r").visititems(collect)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        advice = " MATLAB must save with '-v7.3'." if path.suffix == ".mat" else ""
        raise InputError(
            f"{path} is not a readable HDF5 file ({reason}).{advice} Copy or save it again."
        ) from error
    return {name: _checked(path, name, array) for name, array in found.items()}


def zarr_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a zarr folder by name; a folder that is an array itself has the name `""`.

    **Raises:** `InputError` if zarr is not installed or the folder cannot be read.
    """
    zarr = require("zarr", "data", f"Reading {path}")
    try:
        root = zarr.open(str(path), mode="r")
        found = {"": root} if isinstance(root, zarr.Array) else dict(_members(zarr, root))
    except Exception as error:  # Stores, codecs and JSON each raise errors of their own here.
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"{path} is not a readable zarr folder ({reason}). Save it again.") from error
    return {name: _checked(path, name, array) for name, array in found.items()}


def is_zarr(path: Path) -> bool:
    """Whether a path is meant as zarr: by its name, or by what lies in the folder."""
    marks = (".zarray", ".zgroup", "zarr.json")
    return path.suffix == ".zarr" or (path.is_dir() and any((path / mark).is_file() for mark in marks))


def _members(zarr: Any, group: Any, prefix: str = ""):
    for name in sorted(group.keys()):
        item = group[name]
        if isinstance(item, zarr.Array):
            yield prefix + name, item
        elif isinstance(item, zarr.Group):
            yield from _members(zarr, item, f"{prefix}{name}/")


def _checked(path: Path, name: str, array: Any) -> Any:
    chunks = getattr(array, "chunks", None)
    if chunks and min(chunks) < 1:
        raise InputError(
            f"'{name}' in {path} says that its chunks are {chunks}. It is damaged: save it again."
        )
    if chunks and (size := math.prod(chunks) * array.dtype.itemsize) > _CHUNK_LIMIT:
        raise InputError(
            f"'{name}' in {path} has chunks of {size / 1e9:,.1f} GB, and reading one state means reading one "
            f"chunk. Save it again with chunks of one or a few states (at most {_CHUNK_LIMIT / 1e9:.1f} GB)."
        )
    return array
