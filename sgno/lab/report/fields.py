"""Predicted and true trajectories as pictures: the first channel, one panel in 1D and 2D, three slices in 3D.

For the page a trajectory is one WebP picture with the frames beneath each other, in 255 levels. Where a
prediction is close to the truth its error is drawn instead, on the scale of `sgno.lab.compact`: what is wrong
by a hundredth and what is wrong by all of it are both visible.
"""

import base64
import dataclasses
import io
from typing import Any

import numpy as np
from PIL import Image

from sgno.errors import InputError
from sgno.io.files import Arrays, load_arrays
from sgno.lab.compact import decode, error_codes, errors_of
from sgno.lab.report.runs import Run
from sgno.lab.store import Store

_MOST_NUMBERS = 4_000_000
_MOST_FRAMES = 201
# Of WebP, in a page of many films and in one of few.
LOW_QUALITY, HIGH_QUALITY = 72, 94
# From this relative error on the prediction itself is drawn; 255 levels and WebP blur it by about a fiftieth.
_FAR = 0.1


@dataclasses.dataclass(frozen=True)
class Frames:
    """A trajectory `(times, panels, rows, columns)`: one panel in 1D (one row) and 2D, three slices in 3D."""

    values: np.ndarray
    every: int

    @property
    def amplitude(self) -> float:
        """The largest size of a finite value: colours reach from minus to plus this."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.abs(finite).max(initial=0.0)) or 1.0

    @property
    def center(self) -> float:
        """Zero, or the middle of the range where all values lie on one side of zero, far from it."""
        finite = self.values[np.isfinite(self.values)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return (low + high) / 2 if min(abs(low), abs(high)) > 0.5 * (high - low) else 0.0

    def shifted(self, center: float, every: int) -> "Frames":
        """These frames about a centre, thinned to those that are shown."""
        return Frames(self.values[::every] - np.float32(center), self.every * every)


def load_truth(store: Store, run: Run) -> Frames:
    """The reference trajectory that a run was compared with.

    **Raises:** `InputError` if the file is missing, damaged or of an unexpected shape.
    """
    return _frames(decode(load_arrays(store.truth(_plain_name(run.data)))), run)


def load_prediction(store: Store, run: Run) -> Frames:
    """The same trajectory as predicted. A thinned store has its error alone.

    **Raises:** `InputError` like `load_truth`, and if the run's sample was thinned away.
    """
    path = store.sample(run.id)
    if not path.is_file():
        raise InputError("the picture of another seed of these settings is kept")
    file = decode(load_arrays(path))
    if "errors" not in file.arrays:
        return _frames(file, run)
    truth, codes = load_truth(store, run), file.arrays["errors"]
    amplitude = file.meta.get("amplitude")
    if not isinstance(amplitude, float) or codes.size != truth.values.size or codes.dtype != np.uint8:
        raise InputError(f"{path} is no error of the trajectory that it was compared with.")
    errors = errors_of(codes.reshape(truth.values.shape), amplitude)
    return Frames(truth.values + errors, truth.every)


def _plain_name(name: str) -> str:
    # A record is a stranger's file: its data id must not lead outside the store.
    if not name.isalnum():
        raise InputError(f"The data id {name!r} is not a plain name.")
    return name


def _frames(file: Arrays, run: Run) -> Frames:
    states = file.arrays.get("states")
    dims = run.task["num_spatial_dims"]
    wanted = {1: 3, 2: 4, 3: 5}[dims]
    shape = None if states is None else states.shape
    if (
        states is None
        or states.ndim != wanted
        or not 0 < states.size <= _MOST_NUMBERS
        or len(states) < 2
        or (dims == 3 and states.shape[2] != 3)
    ):
        raise InputError(f"{run.id} holds states of shape {shape}, which is no sample of a {dims}D task.")
    return as_frames(states, dims, max(1, run.task["test_steps"] // (len(states) - 1)))


def as_frames(states: np.ndarray, dims: int, every: int) -> Frames:
    """The first channel of a sample `(times, channels, ...)` as panels; in 3D a sample is three slices."""
    first_channel = states[:, 0].astype(np.float32)
    times, *points = first_channel.shape
    shape = {1: (times, 1, 1, *points), 2: (times, 1, *points), 3: (times, *points)}[dims]
    return Frames(first_channel.reshape(shape), every)


def truth_picture(truth: Frames, quality: int = HIGH_QUALITY) -> str:
    """The reference as base64 of a WebP picture."""
    return _webp(_field_codes(truth.values, truth.amplitude), quality)


def prediction_picture(truth: Frames, prediction: Frames, quality: int = HIGH_QUALITY) -> dict[str, Any]:
    """A prediction for the page's player: picture, `f` or `e` for each frame, and the first frame that is not
    finite.

    **Raises:** `InputError` if truth and prediction differ in shape.
    """
    shape = truth.values.shape
    if prediction.values.shape != shape:
        raise InputError(f"prediction and truth have shapes {prediction.values.shape} and {shape}")
    broken = np.flatnonzero(~np.isfinite(prediction.values).all(axis=(1, 2, 3)))
    end = int(broken[0]) if broken.size else shape[0]
    values, a = prediction.values[:end], truth.amplitude
    with np.errstate(over="ignore", invalid="ignore"):
        errors = values - truth.values[:end]
        size = np.sqrt(np.square(errors / a, dtype=np.float64).mean(axis=(1, 2, 3)))
        # Beyond the colours of the field the error alone says how far.
        field = (size > _FAR) & (np.abs(values / a).max(axis=(1, 2, 3)) < 1.2)
    codes = np.where(field[:, None, None, None], _field_codes(values, a), error_codes(errors, a))
    kinds = "".join("f" if far else "e" for far in field)
    return {"image": _webp(codes, quality) if end else "", "kinds": kinds, "end": end}


def _field_codes(values: np.ndarray, amplitude: float) -> np.ndarray:
    """0..254 for -amplitude..amplitude, saturating."""
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.nan_to_num(np.clip(values / amplitude, -1, 1))
    return (np.rint(share * 127) + 127).astype(np.uint8)


def _webp(codes: np.ndarray, quality: int) -> str:
    """Frames beneath each other, the panels of each side by side."""
    times, panels, rows, columns = codes.shape
    picture = np.ascontiguousarray(codes.transpose(0, 2, 1, 3)).reshape(times * rows, panels * columns)
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "webp", quality=quality, method=4)
    return base64.b64encode(out.getvalue()).decode()
