"""Arrays in `.npy` and `.npz` files, mapped from the disk wherever they are not compressed. No pickle."""

import dataclasses
import io
import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from sgno.errors import InputError
from sgno.io.limits import check_claim

# A compressed array has to be unpacked whole, and more than this is not unpacked into memory.
UNPACKED_LIMIT = 4 * 2**30
_PIECE = 1 << 22
_LOCAL_HEADER = 30
# What numpy's header reader and a damaged zip raise.
DAMAGED = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclasses.dataclass(frozen=True)
class Header:
    """What an array in npy format says of itself; its data begin at byte `offset`."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Mapped:
    """An array in a file, from byte `offset` on.

    It is mapped anew for each read: pages of a map that is kept count as this process's memory for as long
    as the system has room, which for a file of many gigabytes is long.
    """

    path: Path
    header: Header
    offset: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.header.shape

    @property
    def dtype(self) -> np.dtype:
        return self.header.dtype

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        order = "F" if self.header.fortran else "C"
        mapped = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)
        return np.array(mapped[index])


def open_npy(path: Path) -> Mapped:
    """The array of an `.npy` file.

    **Raises:** `InputError` if the file is not one, is truncated or would need pickle.
    """
    try:
        with open(path, "rb") as file:
            header = _read_header(file, path.name)
    except DAMAGED as error:
        raise _damaged(path, error) from error
    if (present := path.stat().st_size - header.offset) < header.nbytes:
        raise InputError(
            f"{path} is truncated: its {header.dtype}{list(header.shape)} takes {header.nbytes:,} bytes, but "
            f"{present:,} are there. Copy or save it again."
        )
    return Mapped(path, header, header.offset)


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an `.npz` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except DAMAGED as error:
        raise _damaged(path, error) from error
    if len(set(members)) < len(members):
        raise InputError(f"{path} holds two arrays of one name. Save it again.")
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def open_npz(path: Path, name: str) -> "Mapped | np.ndarray":
    """One array of an `.npz` file: mapped if it is stored plainly (`np.savez`), unpacked if compressed.

    **Raises:** `InputError` if it is damaged, would need pickle, or unpacks to more than it should.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{name}.npy")
            with archive.open(info) as member:
                header = _read_header(member, f"'{name}' in {path.name}")
                if info.file_size < header.offset + header.nbytes:
                    raise InputError(
                        f"{path} is damaged: '{name}' says it is {header.dtype}{list(header.shape)}, "
                        f"{header.nbytes:,} bytes, but holds {info.file_size:,}. Save it again."
                    )
                if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
                    return _stored(path, info, header)
                stored = min(info.compress_size, path.stat().st_size)
                check_claim(path, name, header.nbytes, stored, UNPACKED_LIMIT)
                return _unpack(path, member, header)
    except InputError:
        raise
    except DAMAGED as error:
        raise _damaged(path, error) from error


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write an `.npy` file. `np.save` writes through C, which does not say that a disk is full."""
    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def _read_header(file: IO[bytes] | io.BufferedIOBase, what: str) -> Header:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise InputError(f"{what} is in npy format {version}, which only tables need. Save a plain array.")
    shape, fortran, dtype = readers[version](file)
    if dtype.hasobject:
        raise InputError(
            f"{what} is an array of Python objects, which is how numpy keeps arrays of different shapes. "
            "Save one array of numbers with one grid for all samples."
        )
    if not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"{what} says its shape is {shape}. Save it again.")
    return Header(shape, dtype, fortran, file.tell())


def _stored(path: Path, info: zipfile.ZipInfo, header: Header) -> Mapped:
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        local = file.read(_LOCAL_HEADER)
        # Lengths of the name and of the extra field, which may differ from those in the directory.
        start = (
            _LOCAL_HEADER + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        )
        offset = info.header_offset + start + header.offset
        file.seek(0, 2)
        if file.tell() < offset + header.nbytes:
            raise InputError(f"{path} is truncated. Copy or save it again.")
    return Mapped(path, header, offset)


def _unpack(path: Path, member: IO[bytes] | io.BufferedIOBase, header: Header) -> np.ndarray:
    """Piece by piece, so that a member shorter than it says is found before memory is spent on it."""
    flat = np.empty(header.nbytes, np.uint8)
    done = 0
    while done < len(flat):
        piece = member.read(min(_PIECE, len(flat) - done))
        if not piece:
            raise InputError(f"{path} is truncated. Copy or save it again.")
        flat[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    # Reading to the end is what checks the archive's own checksum.
    member.read(1)
    return flat.view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")


def _damaged(path: Path, error: BaseException) -> InputError:
    if isinstance(error, InputError):
        return error
    if isinstance(error, OSError) and error.strerror:
        return InputError(f"Cannot read {path} ({error.strerror}). Check the path and its permissions.")
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return InputError(f"{path} is not a readable {path.suffix} file ({reason}). Save it again with numpy.")
