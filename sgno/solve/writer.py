"""Arrays that are written as they come, and appear under their name only when they are complete.

Arrays are `(samples, times, ...)` and arrive a few times at a time. Nothing is held, so memory does not grow
with the number of times.
"""

import contextlib
import functools
import io
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from sgno.errors import InputError, require
from sgno.io.commit import commit, is_being_written, make_folder, part

SUFFIXES = (".npz", ".npy", ".h5", ".hdf5", ".zarr")
# Roughly the number of values in one chunk of a zarr array.
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
    with part(path) as folder:
        beside = folder / path.name
        sink = _SINKS[path.suffix](beside, arrays)
        try:
            yield sink
            sink.close()
        finally:
            sink.release()
        commit(beside, path, replace=replace)


def _check(path: Path, arrays: Mapping[str, Spec], replace: bool) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path} has no known format. Name it with {', '.join(SUFFIXES)}.")
    if path.suffix == ".npy" and len(arrays) > 1:
        raise InputError(f"{path} can hold one array, not {', '.join(arrays)}. Use .npz, .h5 or .zarr.")
    if path.exists() and (not replace or path.is_dir() != (path.suffix == ".zarr")):
        advice = "." if replace else ", or add --force to replace it."
        raise InputError(f"{path} exists already. Choose another name{advice}")
    if is_being_written(path):
        raise InputError(
            f"{path} is being written by another process. Wait for its end, or choose another name."
        )


class _Place(NamedTuple):
    """Where in a file the numbers of an array begin."""

    path: Path
    offset: int


class _Plain:
    """Arrays whose numbers lie in files as in memory, so that a part is written by its position.

    `lay_out` makes files with all but the numbers, and `pack` makes the file that was asked for from these.
    No memory map, whose pages would count as memory of the process.
    """

    def __init__(
        self,
        path: Path,
        arrays: Mapping[str, Spec],
        lay_out: Callable[[Path, Mapping[str, Spec]], dict[str, _Place]],
        pack: Callable[[Path, list[Path]], None],
    ):
        self._path, self._lay_out, self.names, self._pack = path, lay_out, tuple(arrays), pack
        self._open, self._files = contextlib.ExitStack(), {}
        self._begin(arrays)

    def _begin(self, arrays: Mapping[str, Spec]) -> None:
        self._arrays, self._places = arrays, self._lay_out(self._path, arrays)
        for path in {place.path for place in self._places.values()}:
            self._files[path] = self._open.enter_context(path.open("r+b"))

    def put(self, name: str, start: int, part: np.ndarray) -> None:
        spec, (path, offset) = self._arrays[name], self._places[name]
        file = self._files[path]
        rows = part[None] if part.ndim == 1 else part
        row = spec.nbytes // len(rows)
        frame = row // spec.shape[min(1, part.ndim - 1)]
        for sample, block in enumerate(np.ascontiguousarray(rows, spec.dtype)):
            file.seek(offset + sample * row + start * frame)
            file.write(block.data)

    def shorten(self, times: int) -> None:
        """Copy what there is: rows of fewer times begin elsewhere."""
        self.release()
        whole = self._path.with_name("whole")
        whole.mkdir()
        for path in self._files:
            os.replace(path, whole / path.name)
        arrays, places, self._files = self._arrays, self._places, {}
        self._begin({name: spec.shortened(times) for name, spec in arrays.items()})
        for name, spec in arrays.items():
            path, offset = whole / places[name].path.name, places[name].offset
            old = np.memmap(path, spec.dtype, "r", offset, spec.shape)
            length = max(1, _CHUNK_NUMBERS * times // max(1, math.prod(spec.shape)))
            for start in range(0, times, length):
                stop = min(start + length, times)
                self.put(name, start, old[start:stop] if old.ndim == 1 else old[:, start:stop])
        shutil.rmtree(whole)

    def close(self) -> None:
        for file in self._files.values():
            file.flush()
        self.release()
        self._pack(self._path, list(self._files))

    def release(self) -> None:
        self._open.close()


def _npy_files(path: Path, arrays: Mapping[str, Spec]) -> dict[str, _Place]:
    """One `.npy` file an array."""
    places = {}
    for name, spec in arrays.items():
        with path.with_name(f"{name}.npy").open("wb") as file:
            header = {"descr": np.dtype(spec.dtype).str, "fortran_order": False, "shape": spec.shape}
            np.lib.format.write_array_header_2_0(file, header)
            places[name] = _Place(Path(file.name), file.tell())
            file.flush()
            # Unlike `file.truncate` it goes on after an interruption.
            os.ftruncate(file.fileno(), file.tell() + spec.nbytes)
    return places


def _hdf5_file(path: Path, arrays: Mapping[str, Spec]) -> dict[str, _Place]:
    """One HDF5 file of contiguous data sets.

    The library writes into memory only: when a disk refused it a write, the process died of a segmentation
    fault.
    """
    h5py = require("h5py", "data", f"Writing {path}")
    image, places = _Image(), {}
    with h5py.File(image, "w", driver="fileobj") as file:
        for name, spec in arrays.items():
            plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            # The same numbers, the same bytes.
            plan.set_obj_track_times(False)
            kind = h5py.h5t.py_create(np.dtype(spec.dtype), logical=True)
            space = h5py.h5s.create_simple(spec.shape)
            made = h5py.h5d.create(file.id, name.encode(), kind, space, plan)
            places[name] = _Place(path, made.get_offset())
    with path.open("wb") as file:
        for at, content in image.written:
            file.seek(at)
            file.write(content)
        file.flush()
        os.ftruncate(file.fileno(), image.size)
    return places


class _Image(io.RawIOBase):
    """A file in memory of which only what was written takes room."""

    def __init__(self):
        self.written: list[tuple[int, bytes]] = []
        self.size = self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, content: Any, /) -> int:
        self.written.append((self._at, bytes(content)))
        self._at += len(self.written[-1][1])
        self.size = max(self.size, self._at)
        return len(self.written[-1][1])

    def readinto(self, buffer: Any, /) -> int:
        found = bytearray(min(len(buffer), max(0, self.size - self._at)))
        for at, content in self.written:
            low, high = max(at, self._at), min(at + len(content), self._at + len(found))
            if low < high:
                found[low - self._at : high - self._at] = content[low - at : high - at]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def truncate(self, size: int | None = None, /) -> int:
        self.size = self._at if size is None else size
        return self.size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _single(path: Path, members: list[Path]) -> None:
    (member,) = members
    os.replace(member, path)


def _archive(path: Path, members: list[Path]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for member in members:
            archive.write(member, member.name)
            member.unlink()


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


_HDF5 = functools.partial(_Plain, lay_out=_hdf5_file, pack=_single)
_SINKS: dict[str, Callable[[Path, Mapping[str, Spec]], Sink]] = {
    ".npy": functools.partial(_Plain, lay_out=_npy_files, pack=_single),
    ".npz": functools.partial(_Plain, lay_out=_npy_files, pack=_archive),
    ".h5": _HDF5,
    ".hdf5": _HDF5,
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
