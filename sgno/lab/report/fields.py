"""Predicted and true trajectories as small images: eight bits a point, all that a colour scale can show.

Fields share one linear scale a task, symmetric about zero and set by the truth, so that pictures of
different models compare. Errors share one symmetric logarithmic scale relative to the same amplitude:
what is wrong by a hundredth and what is wrong by all of it are both visible.
"""

import base64
import dataclasses
import math
import zlib
from pathlib import Path

import numpy as np

from sgno.errors import InputError
from sgno.io.files import load_arrays
from sgno.lab.report.runs import Run
from sgno.lab.store import Store

ERROR_FLOOR = 5e-3
"""Below this share of the amplitude the scale is linear. Stored samples are rounded to a tenth of it."""

ERROR_TOP = 2.0
NONFINITE = 255
_LEVELS = 127
_MOST_NUMBERS = 4_000_000


@dataclasses.dataclass(frozen=True)
class Frames:
    """A trajectory `(times, panels, rows, columns)`: one panel in 1D (one row) and 2D, three slices in 3D."""

    values: np.ndarray
    every: int

    @property
    def amplitude(self) -> float:
        finite = self.values[np.isfinite(self.values)]
        top = float(np.abs(finite).max()) if finite.size else 0.0
        return top or 1.0


def load_truth(store: Store, run: Run) -> Frames:
    """The reference trajectory that a run was compared with.

    **Raises:** `InputError` if the file is missing, damaged or of an unexpected shape.
    """
    return _frames(store.truth(_plain_name(run.data)), run)


def load_prediction(store: Store, run: Run) -> Frames:
    """The same trajectory as predicted."""
    return _frames(store.sample(run.id), run)


def _plain_name(name: str) -> str:
    # A record is a stranger's file: its data id must not lead outside the store.
    if not name.isalnum():
        raise InputError(f"The data id {name!r} is not a plain name.")
    return name


def _frames(path: Path, run: Run) -> Frames:
    states = load_arrays(path).arrays.get("states")
    dims = run.task["num_spatial_dims"]
    wanted = {1: 3, 2: 4, 3: 5}[dims]
    if states is None or states.ndim != wanted or not 0 < states.size <= _MOST_NUMBERS:
        shape = None if states is None else states.shape
        raise InputError(f"{path} holds states of shape {shape}, which is no sample of a {dims}D task.")
    if len(states) < 2 or (dims == 3 and states.shape[2] != 3):
        raise InputError(
            f"{path} holds states of shape {states.shape}, which is no sample of a {dims}D task."
        )
    return as_frames(states, dims, max(1, run.task["test_steps"] // (len(states) - 1)))


def as_frames(states: np.ndarray, dims: int, every: int) -> Frames:
    """The first channel of a sample `(times, channels, ...)` as panels; in 3D a sample is three slices."""
    first_channel = states[:, 0].astype(np.float32)
    times, *points = first_channel.shape
    shape = {1: (times, 1, 1, *points), 2: (times, 1, *points), 3: (times, *points)}[dims]
    return Frames(first_channel.reshape(shape), every)


def field_codes(values: np.ndarray, amplitude: float) -> np.ndarray:
    """0..254 for -amplitude..amplitude, saturating; 255 where the value is not finite."""
    return _codes(np.clip(values / amplitude, -1, 1), values)


def error_codes(errors: np.ndarray, amplitude: float) -> np.ndarray:
    """0..254 on asinh(e / (floor amplitude)) up to twice the amplitude, saturating; 255 where not finite."""
    scaled = np.arcsinh(errors / (ERROR_FLOOR * amplitude)) / math.asinh(ERROR_TOP / ERROR_FLOOR)
    return _codes(np.clip(scaled, -1, 1), errors)


def _codes(scaled: np.ndarray, values: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    codes = np.rint(np.where(finite, scaled, 0) * _LEVELS) + _LEVELS
    return np.where(finite, codes, NONFINITE).astype(np.uint8)


def pack(codes: np.ndarray) -> str:
    """Differences along the last axis, deflated, in base64: smooth fields become small."""
    first = np.zeros_like(codes[..., :1])
    return base64.b64encode(zlib.compress(np.diff(codes, axis=-1, prepend=first).tobytes(), 9)).decode()


def unpack(text: str, shape: tuple[int, ...]) -> np.ndarray:
    """What the page does in its own language, here for tests."""
    differences = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)
    return np.cumsum(differences, axis=-1, dtype=np.uint8)
