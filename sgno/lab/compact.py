"""Arrays for pictures at the precision that a picture shows, deflated.

    decades    int16, the logarithm in steps of a 800th of a decade (0.3 %): errors, spectra, losses
    unit       int16, from -1 to 1 in steps of 1e-4: correlations
    field      int16, from -a to a in steps of a / 2000, with a the largest amplitude: states
    error      uint8, asinh(e / (1e-3 a)) up to 2 a, with a given by the truth: predictions minus the truth

Each becomes a vector of bytes: differences in time, their low bytes before their high ones, deflated. What is
not finite stays not finite.
"""

import math
import zlib
from collections.abc import Mapping

import numpy as np

from sgno.errors import InputError
from sgno.io.files import Arrays

ERROR_FLOOR, ERROR_TOP = 1e-3, 2.0
"""Shares of the amplitude: errors below the floor have a linear scale, those above the top all look alike."""

NONFINITE = 255
_DECADES, _UNIT, _FIELD, _ERROR = 800, 1e4, 2000, 127
_MISSING, _ZERO = -(2**15), -(2**15) + 1
_MOST_BYTES = 200_000_000


def error_codes(errors: np.ndarray, amplitude: float) -> np.ndarray:
    """0..254 on asinh(e / (floor amplitude)) up to twice the amplitude, saturating; 255 where not finite."""
    finite = np.isfinite(errors)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.arcsinh(errors / (ERROR_FLOOR * amplitude)) / math.asinh(ERROR_TOP / ERROR_FLOOR)
        codes = np.rint(np.clip(np.where(finite, scaled, 0), -1, 1) * _ERROR) + _ERROR
    return np.where(finite, codes, NONFINITE).astype(np.uint8)


def errors_of(codes: np.ndarray, amplitude: float) -> np.ndarray:
    """The errors that `error_codes` saw, within four percent or half of 1e-5 of the amplitude."""
    scaled = (codes.astype(np.float32) - _ERROR) / _ERROR * math.asinh(ERROR_TOP / ERROR_FLOOR)
    return np.where(codes == NONFINITE, np.nan, np.sinh(scaled) * (ERROR_FLOOR * amplitude)).astype(
        np.float32
    )


def encode(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> tuple[dict, dict[str, np.ndarray]]:
    """Settings for the file's metadata and vectors of bytes, for `save_arrays`.

    **Arguments:**

    - `arrays`: any shapes, time first. One of kind `error` holds codes of `error_codes` already.
    - `kinds`: the kind of each, see above.
    """
    settings, packed = {}, {}
    for name, array in arrays.items():
        codes, scale = _codes(np.asarray(array), kinds[name])
        settings[name] = {"kind": kinds[name], "shape": list(codes.shape), "scale": scale}
        packed[name] = np.frombuffer(zlib.compress(_planes(codes), 9), np.uint8)
    return {"compact": settings}, packed


def decode(file: Arrays) -> Arrays:
    """A file's arrays as they were before `encode`, or as they are if they never were. Errors stay codes.

    **Raises:** `InputError` if the bytes are not what the settings say.
    """
    settings = file.meta.get("compact")
    if settings is None:
        return file
    try:
        arrays = {name: _decoded(file.arrays[name], **settings[name]) for name in settings}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, zlib.error) as error:
        raise InputError(f"A compact array is damaged ({error}). Delete the run and run it again.") from error
    return Arrays(file.meta, arrays)


def _codes(array: np.ndarray, kind: str) -> tuple[np.ndarray, float]:
    if kind == "error":
        return array, 1.0
    values = array.astype(np.float64)
    finite = np.isfinite(values)
    scale = 1.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if kind == "decades":
            codes = np.where(values > 0, np.rint(_DECADES * np.log10(values)), _ZERO)
            finite &= values >= 0
        elif kind == "unit":
            codes = np.rint(_UNIT * values)
        else:
            scale = float(np.abs(values[finite]).max(initial=0.0)) or 1.0
            codes = np.rint(_FIELD * values / scale)
    return np.where(finite, np.clip(codes, _ZERO, 2**15 - 1), _MISSING).astype(np.int16), scale


def _planes(codes: np.ndarray) -> bytes:
    """Differences in time, which wrap around, byte by byte."""
    change = np.diff(codes, axis=0, prepend=np.zeros_like(codes[:1]))
    return np.ascontiguousarray(change.view(np.uint8).reshape(-1, codes.dtype.itemsize).T).tobytes()


def _decoded(packed: np.ndarray, kind: str, shape: list[int], scale: float) -> np.ndarray:
    dtype = np.dtype(np.uint8 if kind == "error" else np.int16)
    size = math.prod(shape) * dtype.itemsize
    if not 0 < size <= _MOST_BYTES or min(shape) < 1:
        raise ValueError(f"shape {shape}")
    content = zlib.decompressobj().decompress(packed.tobytes(), size + 1)
    planes = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
    change = np.ascontiguousarray(planes.T).view(dtype).reshape(shape)
    codes = np.cumsum(change, axis=0, dtype=dtype)
    if kind == "error":
        return codes
    values = codes.astype(np.float64)
    if kind == "decades":
        values = np.where(codes == _ZERO, 0.0, 10 ** (np.maximum(values, -45 * _DECADES) / _DECADES))
    elif kind == "unit":
        values = values / _UNIT
    elif kind == "field":
        values = values * (scale / _FIELD)
    else:
        raise ValueError(f"kind {kind!r}")
    return np.where(codes == _MISSING, np.nan, values).astype(np.float32)
