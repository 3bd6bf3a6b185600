"""Reads the container of version 0.1: a line of JSON, then raw arrays. Nothing writes it any more."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError

SUFFIX = ".sgno"
_FORMAT, _VERSION = "sgno-arrays", 1
# A header is settings and array names; anything larger is not ours.
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_FIELDS = {"format", "version", "meta", "arrays", "crc32"}
_DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint32", "int8", "int16", "uint8", "bool")
_RESTORE = "Restore it from a copy, or delete the run it belongs to and run again."


def is_legacy(path: Path) -> bool:
    """Whether a file begins like JSON. A safetensors file begins with a length that is a multiple of 8."""
    with open(path, "rb") as file:
        return file.read(1) == b"{"


def load_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The settings and arrays of a file, each checked against its length and checksum.

    **Raises:** `InputError` if the file is damaged or of another version.
    """
    with open(path, "rb") as file:
        line = file.readline(_MAX_HEADER_BYTES)
        header = _parse_header(path, line)
        body = path.stat().st_size - len(line)
        arrays, taken = {}, 0
        for entry in header["arrays"]:
            name, dtype, shape, offset, crc = _parse_entry(path, entry)
            nbytes = math.prod(shape) * dtype.itemsize
            if offset + nbytes > body:
                raise InputError(
                    f"{path} is truncated: array '{name}' ends at byte {offset + nbytes} of {body}. "
                    f"{_RESTORE}"
                )
            # Entries of the same bytes would be copied once each.
            taken += nbytes
            if taken > body:
                raise InputError(f"{path} is damaged: its arrays overlap. {_RESTORE}")
            file.seek(len(line) + offset)
            content = file.read(nbytes)
            if zlib.crc32(content) != crc:
                raise InputError(
                    f"{path} is damaged: the checksum of array '{name}' does not match. {_RESTORE}"
                )
            arrays[name] = np.frombuffer(content, dtype).reshape(shape)
    return header["meta"], arrays


def _parse_header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a file of sgno: its first line is not a JSON header.") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT or header.get("version") != _VERSION:
        raise InputError(f"{path} is not a file of sgno: its header does not say '{_FORMAT}' {_VERSION}.")
    if not isinstance(header.get("arrays"), list) or not isinstance(header.get("meta"), dict):
        raise InputError(f"{path} has a header without its list of arrays. {_RESTORE}")
    # The first files had no checksum of the header.
    checksum = zlib.crc32(json.dumps([header["meta"], header["arrays"]]).encode())
    if not header.keys() <= _FIELDS or header.get("crc32", checksum) != checksum:
        raise InputError(f"{path} is damaged: the checksum of its header does not match. {_RESTORE}")
    return header


def _parse_entry(path: Path, entry: Any) -> tuple[str, np.dtype, tuple[int, ...], int, int]:
    try:
        name, dtype, shape = entry["name"], entry["dtype"], tuple(entry["shape"])
        offset, crc = entry["offset"], entry["crc32"]
    except (TypeError, KeyError) as error:
        raise InputError(f"{path} has a malformed array entry. {_RESTORE}") from error
    whole = all(type(n) is int and n >= 0 for n in (*shape, offset, crc))
    if not isinstance(name, str) or dtype not in _DTYPES or not whole or len(shape) > 16:
        raise InputError(f"{path} has a malformed array entry. {_RESTORE}")
    return name, np.dtype(dtype).newbyteorder("<"), shape, offset, crc
