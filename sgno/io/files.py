"""JSON with a checksum, and named arrays with settings in a safetensors file."""

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from sgno.errors import InputError
from sgno.io import legacy
from sgno.io.commit import write_bytes

FORMAT = "sgno-arrays"
FORMAT_VERSION = 2
SUFFIX = ".safetensors"
_SEAL = "checksum"
_RESTORE = "Restore it from a copy, or delete the run it belongs to and run again."
_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
)


def content_id(content: Any, length: int = 16) -> str:
    """An id made of content alone: SHA-256 of its canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


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
    """Read JSON of `write_json(path, seal(content))`, checked.

    **Raises:** `InputError` if the content is not what was written, or nothing says that it is.
    """
    content = read_json(path)
    if not isinstance(content, dict) or _SEAL not in content:
        raise InputError(
            f"{path} has no checksum, so nothing says that it is whole. Delete it and run again to rebuild "
            "it."
        )
    try:
        whole = content[_SEAL] == content_id({key: value for key, value in content.items() if key != _SEAL})
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise InputError(
            f"{path} is damaged: its checksum does not match. Delete it and run again to rebuild it."
        )
    return content


def checksum(array: np.ndarray) -> int:
    """CRC-32 of an array's bytes, read in pieces so that a memory map stays on disk."""
    flat = array.reshape(-1)
    value, piece = 0, 1 << 22
    for start in range(0, flat.size, piece):
        value = zlib.crc32(np.ascontiguousarray(flat[start : start + piece]).data, value)
    return value


class Arrays(NamedTuple):
    """What a file holds: free-form settings and named arrays."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]


def save_arrays(path: Path, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a safetensors file, whole or not at all.

    Its metadata holds each entry of `meta` as JSON, the version of the format, and a SHA-256 of everything.
    """
    arrays = {name: np.ascontiguousarray(a).reshape(np.shape(a)) for name, a in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise InputError(
                f"Array '{name}' has dtype {array.dtype}, but only {', '.join(_DTYPES)} are stored."
            )
    metadata = {name: json.dumps(value, allow_nan=False) for name, value in meta.items()}
    metadata |= {"format": FORMAT, "version": str(FORMAT_VERSION)}
    metadata["checksum"] = _digest(metadata, arrays)
    write_bytes(path, [safetensors.numpy.save(arrays, metadata)])


def load_arrays(path: Path) -> Arrays:
    """Read a file of `save_arrays`, of this version or of 0.1, and check it against its checksum.

    **Raises:** `InputError` if there is no such file, or if it is damaged or not one of ours.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if legacy.is_legacy(path):
        return Arrays(*legacy.load_arrays(path))
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise InputError(
            f"{path} is not a safetensors file, or it is damaged or truncated ({error}). {_RESTORE}"
        ) from error
    if metadata.pop("format", None) != FORMAT:
        raise InputError(
            f"{path} was not written by sgno: its metadata do not say '{FORMAT}'. Give a file of `sgno.save`."
        )
    if (version := metadata.pop("version", None)) != str(FORMAT_VERSION):
        raise InputError(
            f"{path} has format version {version!r}, but this sgno reads {FORMAT_VERSION} and older. "
            "Use a newer sgno."
        )
    said = metadata.pop("checksum", None)
    if said != _digest({**metadata, "format": FORMAT, "version": str(FORMAT_VERSION)}, arrays):
        raise InputError(f"{path} is damaged: its checksum does not match. {_RESTORE}")
    return Arrays({name: json.loads(value) for name, value in metadata.items()}, arrays)


def _digest(metadata: Mapping[str, str], arrays: Mapping[str, np.ndarray]) -> str:
    """A SHA-256 of metadata and arrays, whatever their order in the file."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def stored(path: Path) -> Path:
    """`path`, or the `.sgno` file in its place that version 0.1 wrote."""
    older = path.with_suffix(legacy.SUFFIX)
    return older if older.is_file() and not path.is_file() else path
