"""What is believed of a stranger's file: that it holds numbers, as many as its size makes likely."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError

# Measured states do not shrink a hundredfold: what claims this much from so little is a bomb, or a hole.
_BOMB_BYTES, _BOMB_RATIO = 256 * 2**20, 200
# A chunk is unpacked whole, whatever part of it is asked for.
_CHUNK_BYTES = 2**30


def check_numbers(path: Path, name: str, dtype: Any) -> np.dtype:
    """The dtype of an array of numbers.

    **Raises:** `InputError` for Python objects, texts, tables and whatever else has no place in a trajectory.
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise InputError(f"'{name}' in {path} holds {str(dtype)[:80]!r}. Save it as float32.") from error
    if found.kind not in "biufc":
        raise InputError(
            f"'{name}' in {path} holds {found}, but trajectories are numbers. Save it as float32."
        )
    return found


def check_chunks(path: Path, name: str, chunks: tuple[int, ...], dtype: np.dtype) -> None:
    """**Raises:** `InputError` if chunks have no size, or one that nobody wants to unpack."""
    if chunks and min(chunks) < 1:
        raise InputError(
            f"'{name}' in {path} says that its chunks are {chunks}. It is damaged: save it again."
        )
    if (size := math.prod(chunks) * dtype.itemsize) > _CHUNK_BYTES:
        raise InputError(
            f"'{name}' in {path} has chunks of {size / 1e9:,.1f} GB, and reading one state means reading one "
            f"chunk. Save it again with chunks of one or a few states (at most {_CHUNK_BYTES / 1e9:.1f} GB)."
        )


def check_claim(path: Path, name: str, claimed: int, stored: int, most: int | None = None) -> None:
    """**Arguments:**

    - `claimed`: how many bytes the array has by its shape.
    - `stored`: how many there are in the file.
    - `most`: a further limit, for what is unpacked in memory.

    **Raises:** `InputError` if the one is far larger than the other.
    """
    if (most and claimed > most) or (claimed > _BOMB_BYTES and claimed > _BOMB_RATIO * stored):
        limit = f"at most {most / 1e9:.1f} GB, and " if most else ""
        raise InputError(
            f"'{name}' in {path} unpacks from {stored / 1e6:,.1f} MB to {claimed / 1e9:,.2f} GB; {limit}no "
            f"more than {_BOMB_RATIO} times its size is unpacked. Save only what is filled, as .npy, HDF5 or "
            "zarr."
        )
