"""Arrays that are written as they come, and appear under their name only when they are complete.

Arrays are `(samples, times, ...)` and arrive a few times at a time. Nothing is held, so memory does not grow
with the number of times.
"""

import contextlib
import functools
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from sgno.errors import InputError, require
from sgno.io.files import make_folder

SUFFIXES = (".npz", ".npy", ".h5", ".hdf5", ".zarr")
# Roughly the number of values in one chunk of an HDF5 or zarr array.
_CHUNK_NUMBERS = 250_000


class Spec(NamedTuple):
    """The shape and the dtype of an array to be written."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def shortened(self, times: int) -> "Spec":
        """With fewer times, which are the second axis, or the only one."""
        at = min(1, len(self.shape) - 1)
        return self._replace(shape=(*self.shape[:at], times, *self.shape[at + 1 :]))


class Sink(Protocol):
    """Takes the arrays of one file, called `names`, a part at a time."""

    names: tuple[str, ...]

    def put(self, name: str, start: int, part: np.ndarray) -> None:
        """Write `part`, `(samples, times, ...)` or `(times,)`, at time `start` of the array called `name`."""
        ...

    def shorten(self, times: int) -> None:
        """No more times will come: the arrays end there."""
        ...

    def close(self) -> None:
        """Everything was put: make the file complete."""
        ...

    def release(self) -> None:
        """Let go of open files, complete or not."""
        ...


@contextlib.contextmanager
def writer(path: Path, arrays: Mapping[str, Spec], *, replace: bool = False) -> Iterator[Sink]:
    """A file to be filled, which appears under `path` when the block ends without an error.

    **Arguments:**

    - `path`: `.npz`, `.npy` (one array only), `.h5`, `.hdf5` or `.zarr`.
    - `arrays`: what it will hold.
    - `replace`: whether an existing file may be replaced.

    **Raises:** `InputError` if the format is unknown or its package missing, if the file exists, or if it
    will not fit on the disk.
    """
    path = Path(path)
    _check(path, arrays, replace)
    make_folder(path.parent)
    need, free = sum(spec.nbytes for spec in arrays.values()), shutil.disk_usage(path.parent).free
    # An .npz is packed from .npy files once they are complete, so both are there for a moment.
    need *= 2 if path.suffix == ".npz" else 1
    if need > free:
        raise InputError(
            f"{path} needs {need / 1e9:,.1f} GB on the way, but the disk has {free / 1e9:,.1f} GB free. "
            "Keep fewer states (--every) or none (--statistics)."
        )
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        beside = folder / path.name
        sink = _SINKS[path.suffix](beside, arrays)
        try:
            yield sink
            sink.close()
        finally:
            sink.release()
        if path.is_dir():
            shutil.rmtree(path)
        os.replace(beside, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(path: Path, arrays: Mapping[str, Spec], replace: bool) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} has no known format. Name it with {', '.join(SUFFIXES)}.")
    if path.suffix == ".npy" and len(arrays) > 1:
        raise InputError(f"{path} can hold one array, not {', '.join(arrays)}. Use .npz, .h5 or .zarr.")
    if path.exists() and (not replace or path.is_dir() != (path.suffix == ".zarr")):
        advice = "." if replace else ", or add --force to replace it."
        raise InputError(f"{path} exists already. Choose another name{advice}")


class _Npy:
    """`.npy` files, one an array, that `pack` puts into their place when they are complete.

    They are written by position, not through a memory map, whose pages would count as memory of the process.
    """

    def __init__(self, path: Path, arrays: Mapping[str, Spec], pack: Callable[[Path, list[Path]], None]):
        self._path, self._folder, self.names, self._pack = path, path.parent, tuple(arrays), pack
        self._open, self._files, self._offsets = contextlib.ExitStack(), {}, {}
        self._begin(arrays)

    def _begin(self, arrays: Mapping[str, Spec]) -> None:
        self._arrays = arrays
        for name, spec in arrays.items():
            file = self._open.enter_context((self._folder / f"{name}.npy").open("wb"))
            header = {"descr": np.dtype(spec.dtype).str, "fortran_order": False, "shape": spec.shape}
            np.lib.format.write_array_header_2_0(file, header)
            self._files[name], self._offsets[name] = file, file.tell()
            file.truncate(file.tell() + spec.nbytes)

    def put(self, name: str, start: int, part: np.ndarray) -> None:
        spec, file = self._arrays[name], self._files[name]
        rows = part[None] if part.ndim == 1 else part
        row = spec.nbytes // len(rows)
        frame = row // spec.shape[min(1, part.ndim - 1)]
        for sample, block in enumerate(np.ascontiguousarray(rows, spec.dtype)):
            file.seek(self._offsets[name] + sample * row + start * frame)
            file.write(block.data)

    def shorten(self, times: int) -> None:
        """Copy what there is: rows of fewer times begin elsewhere."""
        self.release()
        for name in self._arrays:
            os.replace(self._folder / f"{name}.npy", self._folder / f"{name}.whole")
        self._begin({name: spec.shortened(times) for name, spec in self._arrays.items()})
        for name, spec in self._arrays.items():
            whole = np.load(self._folder / f"{name}.whole", mmap_mode="r")
            length = max(1, _CHUNK_NUMBERS * times // max(1, math.prod(spec.shape)))
            for start in range(0, times, length):
                stop = min(start + length, times)
                self.put(name, start, whole[start:stop] if whole.ndim == 1 else whole[:, start:stop])
            (self._folder / f"{name}.whole").unlink()

    def close(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        self.release()
        self._pack(self._path, [self._folder / f"{name}.npy" for name in self.names])

    def release(self) -> None:
        self._open.close()


def _single(path: Path, members: list[Path]) -> None:
    (member,) = members
    os.replace(member, path)


def _archive(path: Path, members: list[Path]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for member in members:
            archive.write(member, member.name)
            member.unlink()


class _Hdf5:
    """Chunked data sets of one HDF5 file."""

    def __init__(self, path: Path, arrays: Mapping[str, Spec]):
        h5py = require("h5py", "data", f"Writing {path}")
        self._file, self._specs, self.names = h5py.File(path, "w"), arrays, tuple(arrays)
        for name, spec in arrays.items():
            self._file.create_dataset(name, spec.shape, spec.dtype, chunks=_chunks(spec), maxshape=spec.shape)

    def put(self, name: str, start: int, part: np.ndarray) -> None:
        self._file[name][_place(part, start)] = part

    def shorten(self, times: int) -> None:
        for name, spec in self._specs.items():
            self._file[name].resize(spec.shortened(times).shape)

    def close(self) -> None:
        self._file.flush()

    def release(self) -> None:
        self._file.close()


class _Zarr:
    """Arrays of one zarr folder."""

    def __init__(self, path: Path, arrays: Mapping[str, Spec]):
        zarr = require("zarr", "data", f"Writing {path}")
        zarr.open_group(str(path), mode="w")
        self._specs, self.names = arrays, tuple(arrays)
        self._arrays = {
            # A group's own way to make an array has another name in zarr 2.
            name: zarr.open_array(
                str(path / name), mode="w", shape=spec.shape, dtype=spec.dtype, chunks=_chunks(spec)
            )
            for name, spec in arrays.items()
        }

    def put(self, name: str, start: int, part: np.ndarray) -> None:
        self._arrays[name][_place(part, start)] = part

    def shorten(self, times: int) -> None:
        for name, spec in self._specs.items():
            self._arrays[name].resize(spec.shortened(times).shape)

    def close(self) -> None:
        """Every part was written when it was put."""

    def release(self) -> None:
        """No file stays open."""


_SINKS: dict[str, Callable[[Path, Mapping[str, Spec]], Sink]] = {
    ".npy": functools.partial(_Npy, pack=_single),
    ".npz": functools.partial(_Npy, pack=_archive),
    ".h5": _Hdf5,
    ".hdf5": _Hdf5,
    ".zarr": _Zarr,
}


def _place(part: np.ndarray, start: int) -> tuple[slice, ...]:
    """Where a part goes: times are the last axis of a list of times, and the second one otherwise."""
    at = min(1, part.ndim - 1)
    return (*[slice(None)] * at, slice(start, start + part.shape[at]))


def _chunks(spec: Spec) -> tuple[int, ...]:
    """Some whole states of one sample."""
    if len(spec.shape) == 1:
        return (min(spec.shape[0], _CHUNK_NUMBERS),)
    state = spec.shape[2:]
    times = int(np.clip(_CHUNK_NUMBERS // max(1, math.prod(state)), 1, max(1, spec.shape[1])))
    return (1, times, *state)
