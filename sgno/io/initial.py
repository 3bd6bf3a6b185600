"""Initial states from a file: of one or many states, or the first frames of trajectories."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.layout import Layout
from sgno.io.source import Source, open_array, open_source

NAMES = ("u", "u0", "initial", "test", "train")


class InitialStates(NamedTuple):
    """`(samples, frames, channels, *points)` in float32, and how many samples the file has."""

    frames: np.ndarray
    of: int


def initial_states(
    path: Path | str,
    grid: Grid,
    *,
    key: str | None = None,
    layout: str | None = None,
    samples: int | None = None,
    frames: int = 1,
) -> InitialStates:
    """States to start from.

    **Arguments:**

    - `path`: `.npy`, `.npz`, HDF5 or zarr with `(channels, *points)`, `(samples, channels, *points)` or
        `(samples, times, channels, *points)`, of which the first time is taken. A single channel may be
        left out of a single state.
    - `grid`: what the step was made for. The number of points may differ, channels and axes may not.
    - `key`: which array of the file.
    - `layout`: the axes of trajectories in another order, see `sgno.io.layout.parse_layout`.
    - `samples`: at most so many, from the first.
    - `frames`: how many frames a rollout starts from: the first of a trajectory.

    **Raises:** `InputError` if the file cannot be read, does not fit, or has values that are not finite.
    """
    if layout is not None:
        source = open_source(path, key=key, layout=layout, prefer=NAMES)
    else:
        source = _by_axes(Path(path), grid, key)
    channels, *points = source.shape[2:]
    if channels != grid.channels or len(points) != grid.num_spatial_dims:
        raise InputError(
            f"{source.name} has states of shape {tuple(source.shape[2:])}, but the model was made for "
            f"{grid.shape}. The points per axis may differ, the channels and the number of axes may not."
        )
    count = source.shape[0] if samples is None else min(samples, source.shape[0])
    if source.shape[1] < frames:
        raise InputError(
            f"{source.name} has {source.shape[1]} frame(s), but the model starts from {frames}. Give "
            "trajectories (samples, times, channels, *points) with at least as many times."
        )
    return InitialStates(source.read(slice(0, count), slice(0, frames)), source.shape[0])


def _by_axes(path: Path, grid: Grid, key: str | None) -> Source:
    """The source whose number of axes says what it is, given the number of axes in space."""
    raw, name = open_array(path, key, NAMES)
    d, ndim = grid.num_spatial_dims, len(raw.shape)
    space = tuple(range(ndim - d, ndim))
    layouts = {
        d: Layout((None, None, None, *space)),
        d + 1: Layout((None, None, 0, *space)),
        d + 2: Layout((0, None, 1, *space)),
    }
    label = f"'{name}' in {path}" if name else str(path)
    if ndim == d + 3:
        return open_source(path, key=key, prefer=NAMES)
    if ndim not in layouts:
        raise InputError(
            f"{label} has {ndim} axes. For this model in {d}D give (channels, *points), (samples, channels, "
            f"*points) or (samples, times, channels, *points): {d + 1}, {d + 2} or {d + 3} axes."
        )
    if getattr(raw.dtype, "kind", "?") not in "fiu" or 0 in raw.shape:
        raise InputError(
            f"{label} holds {raw.dtype}{list(raw.shape)}, but states are real numbers. Save them as float32."
        )
    return Source(raw, layouts[ndim], label)
