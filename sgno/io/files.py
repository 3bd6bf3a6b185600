"""Files that appear whole or not at all, and a container for arrays that cannot run code.

Everything is written beside its final place and renamed last, so a killed process or a full
disk leaves either the old content or the new, never a part of it. What is being written is locked,
so that leftovers of killed processes can be told from it without a clock.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgno.errors import InputError, StorageError, storage_error
from sgno.io.locks import held, is_current, lock

FORMAT = "sgno-arrays"
FORMAT_VERSION = 1
_PART = ".part"
_SEAL = "checksum"
# A header is settings and array names; anything larger is not ours.
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_FIELDS = {"format", "version", "meta", "arrays", "crc32"}
_RESTORE = "Restore it from a copy, or delete the run it belongs to and run again."
_DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint32", "int8", "int16", "uint8", "bool")


def content_id(content: Any, length: int = 16) -> str:
    """An id made of content alone: SHA-256 of its canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def write_bytes(path: Path, chunks: Iterator[bytes] | list[bytes]) -> None:
    """Write `path` whole or not at all."""
    path = Path(path)
    make_folder(path.parent)
    with explained(path):
        descriptor, beside = _file_beside(path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
                os.chmod(beside, 0o666 & ~_umask())
                os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _file_beside(path: Path) -> tuple[int, Path]:
    """A new file next to `path`, locked for as long as it is open."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_PART, dir=path.parent)
        granted = lock(descriptor)
        if granted is None or (granted and is_current(descriptor, Path(name))):
            return descriptor, Path(name)
        # Swept away before it was locked.
        os.close(descriptor)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a disk's refusal to take more into an error that says what to do."""
    try:
        yield
    except OSError as error:
        said = storage_error(error, path)
        if said is None:
            raise
        raise said from error


def finite(content: Any) -> Any:
    """The content with None for every number that is not finite: JSON has neither NaN nor infinity."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple, np.ndarray)):
        return [finite(value) for value in content]
    if isinstance(content, (float, np.floating)):
        return float(content) if math.isfinite(content) else None
    return content


def write_json(path: Path, content: Any) -> None:
    """Write strict JSON whole or not at all."""
    write_bytes(path, [json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"])


def read_json(path: Path) -> Any:
    """Read JSON, with an error that names the file."""
    try:
        return json.loads(Path(path).read_text())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is not valid JSON ({error}). Delete it and run again to rebuild it."
        ) from error


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with a checksum of itself, for `read_sealed`."""
    plain = json.loads(json.dumps(content, allow_nan=False))
    return {**plain, _SEAL: content_id(plain)}


def read_sealed(path: Path) -> Any:
    """Read JSON of `write_json(path, seal(content))`, checked; content from before there were seals has none.

    **Raises:** `InputError` if the content is not what was written.
    """
    content = read_json(path)
    if not isinstance(content, dict) or _SEAL not in content:
        return content
    try:
        whole = content[_SEAL] == content_id({key: value for key, value in content.items() if key != _SEAL})
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise InputError(
            f"{path} is damaged: its checksum does not match. Delete it and run again to rebuild it."
        )
    return content


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` when the block ends without an error.

    If another process finished the same folder first, theirs stays and ours is dropped.
    """
    target = Path(target)
    make_folder(target.parent)
    with explained(target), contextlib.ExitStack() as stack:
        beside = _folder_beside(target, stack)
        try:
            yield beside
            for file in beside.iterdir():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
            os.chmod(beside, 0o777 & ~_umask())
            try:
                os.rename(beside, target)
            except OSError:
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _folder_beside(target: Path, stack: contextlib.ExitStack) -> Path:
    """A new folder next to `target`, locked until the stack is closed."""
    while True:
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_PART, dir=target.parent))
        if stack.enter_context(held(beside)) is not False:
            return beside
        # Swept away before it was locked.


def sweep(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder of ours; what is being written is locked."""
    for path in Path(folder).glob(f".*{_PART}"):
        with contextlib.suppress(OSError), held(path) as abandoned:
            if abandoned:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _umask() -> int:
    """The process's mask: temporary files are private, what they become is as readable as any other."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def make_folder(path: Path) -> Path:
    """Create a folder, or say why it cannot be written to."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot create the folder {path} ({error.strerror}). Choose another with write access."
        ) from error
    if not os.access(path, os.W_OK):
        raise StorageError(f"The folder {path} is not writable. Choose another or change its permissions.")
    return Path(path)


def checksum(array: np.ndarray) -> int:
    """CRC-32 of an array's bytes, read in pieces so that a memory map stays on disk."""
    flat = array.reshape(-1)
    value, piece = 0, 1 << 22
    for start in range(0, flat.size, piece):
        value = zlib.crc32(np.ascontiguousarray(flat[start : start + piece]).data, value)
    return value


class Arrays(NamedTuple):
    """What a container holds: free-form settings and named arrays."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write one file: a JSON line, then the raw arrays. Never pickle."""
    entries, offset = [], 0
    little = {
        name: np.asarray(a, np.asarray(a).dtype.newbyteorder("<"), order="C") for name, a in arrays.items()
    }
    for name, array in little.items():
        if array.dtype.name not in _DTYPES:
            raise InputError(
                f"Array '{name}' has dtype {array.dtype}, but only {', '.join(_DTYPES)} are stored."
            )
        entries.append(
            {
                "name": name,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "offset": offset,
                "crc32": checksum(array),
            }
        )
        offset += array.nbytes
    header = {"format": FORMAT, "version": FORMAT_VERSION, "meta": dict(meta), "arrays": entries}
    header["crc32"] = _header_checksum(header)
    line = json.dumps(header, allow_nan=False).encode() + b"\n"
    write_bytes(path, [line, *(array.tobytes() for array in little.values())])


def load_arrays(path: Path) -> Arrays:
    """Read a file of `save_arrays`, checking every length and checksum before believing it."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    size = path.stat().st_size
    with open(path, "rb") as file:
        line = file.readline(_MAX_HEADER_BYTES)
        header = _parse_header(path, line)
        body = size - len(line)
        arrays = {}
        for entry in header["arrays"]:
            name, dtype, shape, offset, crc = _parse_entry(path, entry)
            count = 1
            for n in shape:
                count *= n
            nbytes = count * dtype.itemsize
            if offset + nbytes > body:
                raise InputError(
                    f"{path} is truncated: array '{name}' ends at byte {offset + nbytes} of {body}. "
                    f"{_RESTORE}"
                )
            file.seek(len(line) + offset)
            array = np.frombuffer(file.read(nbytes), dtype).reshape(shape)
            if checksum(array) != crc:
                raise InputError(
                    f"{path} is damaged: the checksum of array '{name}' does not match. {_RESTORE}"
                )
            arrays[name] = array
    return Arrays(header["meta"], arrays)


def _parse_header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"{path} is not a file of sgno: its first line is not a JSON header.") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path} is not a file of sgno: its header does not say '{FORMAT}'.")
    if header.get("version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {header.get('version')!r}, but this sgno reads {FORMAT_VERSION}. "
            "Use a matching version of sgno."
        )
    if not isinstance(header.get("arrays"), list) or not isinstance(header.get("meta"), dict):
        raise InputError(f"{path} has a header without its list of arrays. Restore it from a copy.")
    # Files from before headers had a checksum have every field but that one.
    if not header.keys() <= _FIELDS or header.get("crc32", _header_checksum(header)) != _header_checksum(
        header
    ):
        raise InputError(f"{path} is damaged: the checksum of its header does not match. {_RESTORE}")
    return header


def _header_checksum(header: Mapping[str, Any]) -> int:
    # Dictionaries keep their order, so what was read is written as it was.
    return zlib.crc32(json.dumps([header["meta"], header["arrays"]]).encode())


def _parse_entry(path: Path, entry: Any) -> tuple[str, np.dtype, tuple[int, ...], int, int]:
    try:
        name, dtype, shape = entry["name"], entry["dtype"], tuple(entry["shape"])
        offset, crc = entry["offset"], entry["crc32"]
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} has a malformed array entry. Restore it from a copy.") from error
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in (*shape, offset))
    if not isinstance(name, str) or dtype not in _DTYPES or not whole or len(shape) > 16:
        raise InputError(f"{path} has a malformed array entry. Restore it from a copy.")
    return name, np.dtype(dtype).newbyteorder("<"), shape, offset, crc
