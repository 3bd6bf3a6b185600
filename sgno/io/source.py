"""Trajectories wherever they are: in a file of some format, or in memory. Read a part at a time.

Whatever the file's axis order, a `Source` has the shape `(samples, times, channels, *points)`.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sgno.errors import InputError, unknown_name
from sgno.grid import Grid
from sgno.io.containers import HDF5_SUFFIXES, hdf5_names, is_zarr, open_hdf5, open_zarr, zarr_names
from sgno.io.layout import Layout, check_axes, parse_layout
from sgno.io.npy import DAMAGED, npz_names, open_npy, open_npz

_FORMATS = f".npy, .npz, HDF5 ({', '.join(HDF5_SUFFIXES)}) or zarr"
# Parts of this many numbers are read at once, so that a conversion never holds a second copy of much.
_PART_NUMBERS = 16_000_000
# Up to this many bytes an id is made of every number; beyond, of states drawn from all over the file.
_HASHED_BYTES = 256 * 2**20
_HASHED_STATES = 64

Selection = slice | np.ndarray | Sequence[int]


@runtime_checkable
class Raw(Protocol):
    """An array in memory or on disk that slices can be read from: numpy, h5py and zarr all are."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class Source:
    """Trajectories `(samples, times, channels, *points)` that are read a part at a time, as float32."""

    def __init__(self, raw: Raw, layout: Layout, name: str):
        """**Arguments:**

        - `raw`: the array as it is stored.
        - `layout`: which of its axes is which.
        - `name`: what messages call it.
        """
        self._raw, self._layout, self.name = raw, layout, name
        self.shape = layout.shape(tuple(int(n) for n in raw.shape))

    def __repr__(self) -> str:
        samples, times, channels, *points = self.shape
        grid = "x".join(map(str, points))
        return f"{self.name}: {samples} trajectories, {times} times, {channels} channel(s), {grid} points"

    @property
    def grid(self) -> Grid:
        return Grid(self.shape[2], self.shape[3:])

    @property
    def nbytes(self) -> int:
        """Bytes of all of it as float32."""
        return 4 * math.prod(self.shape)

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        """These times of these samples, `(samples, times, channels, *points)`; nothing else is read.

        **Raises:** `InputError` naming the sample and the step of the first value that is not a finite
        float32 number.
        """
        i, t = (_numbers(chosen, n) for chosen, n in zip((samples, times), self.shape[:2], strict=True))
        out = np.empty((len(i), len(t), *self.shape[2:]), np.float32)
        state = math.prod(self.shape[2:])
        for at_t, run_t in _runs(t, max(1, _PART_NUMBERS // state)):
            longest = max(1, _PART_NUMBERS // (state * (run_t.stop - run_t.start)))
            for at_i, run_i in _runs(i, longest):
                out[at_i, at_t] = self._part(run_i, run_t)
        return out

    def __getitem__(self, index: tuple[Selection, Selection]) -> np.ndarray:
        """`source[samples, times]` is `source.read(samples, times)`."""
        return self.read(*index)

    def origin(self, sample: int, time: int) -> tuple[int, int]:
        """The numbers that a sample and a step have in the user's file."""
        return sample, time

    def id(self) -> str:
        """An id of the content: of all of it if it is small, else of shape and some states."""
        digest = hashlib.sha256(repr(self.shape).encode())
        if self.nbytes <= _HASHED_BYTES:
            for sample in range(self.shape[0]):
                digest.update(self.read([sample]).tobytes())
        else:
            rng = np.random.default_rng(0)
            for _ in range(_HASHED_STATES):
                sample, time = (int(rng.integers(n)) for n in self.shape[:2])
                digest.update(self.read([sample], [time]).tobytes())
        return digest.hexdigest()[:16]

    def _part(self, samples: slice, times: slice) -> np.ndarray:
        try:
            raw = np.asarray(self._raw[self._layout.index(samples, times)])
        except DAMAGED as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise InputError(
                f"{self.name} cannot be read at sample {samples.start}, step {times.start} ({reason}). "
                "Copy or save it again."
            ) from error
        with np.errstate(over="ignore", invalid="ignore"):
            part = self._layout.canonical(raw).astype(np.float32)
        finite = np.isfinite(part).reshape(*part.shape[:2], -1).all(axis=2)
        if not finite.all():
            sample, time = (int(n) for n in np.argwhere(~finite)[0])
            self._raise_nonfinite(
                self._layout.canonical(raw)[sample, time], samples.start + sample, times.start + time
            )
        return part

    def _raise_nonfinite(self, state: np.ndarray, sample: int, time: int) -> None:
        where = f"in sample {sample}, step {time}"
        if np.isfinite(state).all():
            raise InputError(
                f"{self.name} has the value {np.abs(state).max():.3g} {where}, beyond the largest float32 "
                "number, 3.4e38. Use other units, or leave out the sample."
            )
        kind = "a NaN" if np.isnan(state).any() else "an infinity"
        raise InputError(
            f"{self.name} has {kind} {where}. Leave out the sample or the steps from there on: a "
            "solver that diverged needs a smaller time step."
        )


class JoinedSource(Source):
    """Several sources of one grid and length, one after the other."""

    def __init__(self, sources: Sequence[Source]):
        first = sources[0]
        for other in sources[1:]:
            if other.shape[1:] != first.shape[1:]:
                raise InputError(
                    f"{other.name} has (times, channels, *points) = {other.shape[1:]}, but {first.name} has "
                    f"{first.shape[1:]}. Fit files of one grid and one length together."
                )
        self._sources = tuple(sources)
        self._starts = np.cumsum([0, *(source.shape[0] for source in sources)])
        self.name = f"{first.name} and {len(sources) - 1} more"
        self.shape = (int(self._starts[-1]), *first.shape[1:])

    def _part(self, samples: slice, times: slice) -> np.ndarray:
        parts = []
        for start, source in zip(self._starts, self._sources, strict=False):
            low, high = max(samples.start - start, 0), min(samples.stop - start, source.shape[0])
            if low < high:
                parts.append(source._part(slice(int(low), int(high)), times))
        return np.concatenate(parts)


def array_source(array: Any, *, layout: str | None = None, name: str = "The array") -> Source:
    """Trajectories that are in memory (or in any array that can be sliced).

    **Raises:** `InputError` if its axes, shape or kind of numbers do not fit.
    """
    # A list, or an array of another framework, has no dtype of numpy's kind.
    raw = array if hasattr(getattr(array, "dtype", None), "kind") else np.asarray(array)
    return _source(raw, layout, name)


def open_source(
    path: Path | str,
    *,
    key: str | None = None,
    layout: str | None = None,
    prefer: Sequence[str] = ("u", "train"),
) -> Source:
    """Trajectories in an `.npy`, `.npz`, HDF5 or zarr file; only its header is read here.

    **Arguments:**

    - `path`: the file (or zarr folder).
    - `key`: which array, where a file holds several. [default: the first of `prefer` that is there, or the
        only array]
    - `layout`: the order of the axes, see `sgno.io.layout.parse_layout`.
    - `prefer`: names that are looked for without a `key`.

    **Raises:** `InputError` if there is no such file or array, or it does not hold trajectories.
    """
    path = Path(path)
    raw, name = open_array(path, key, prefer)
    return _source(raw, layout, f"'{name}' in {path}" if name else str(path))


def source_keys(path: Path | str) -> list[str]:
    """The names of the arrays in a file that can hold several; of an `.npy` file none.

    **Raises:** `InputError` if the file cannot be read.
    """
    path = _existing(Path(path))
    if path.suffix == ".npz":
        return npz_names(path)
    if is_zarr(path):
        return [name for name in zarr_names(path) if name]
    return hdf5_names(path) if path.suffix in HDF5_SUFFIXES else []


def open_array(path: Path, key: str | None, prefer: Sequence[str]) -> tuple[Raw, str]:
    """The array that is meant in a file, as it is stored, and its name there."""
    _existing(path)
    if path.suffix == ".npy":
        if key is not None:
            raise InputError(f"{path} is a single array, so --key {key} means nothing. Leave it out.")
        return open_npy(path), ""
    if path.suffix == ".npz":
        names, read = npz_names, open_npz
    elif is_zarr(path):
        names, read = zarr_names, open_zarr
    elif path.suffix in HDF5_SUFFIXES:
        names, read = hdf5_names, open_hdf5
    else:
        raise InputError(f"{path} is not of a known format. Give {_FORMATS}.")
    name = _choose(path, names(path), key, prefer)
    return read(path, name), name


def _existing(path: Path) -> Path:
    if not path.exists():
        raise InputError(f"There is no file {path}. Give trajectories as {_FORMATS}.")
    if path.is_dir() and not is_zarr(path):
        raise InputError(f"{path} is a folder, but not of zarr. Give {_FORMATS}.")
    return path


def _choose(path: Path, names: list[str], key: str | None, prefer: Sequence[str]) -> str:
    if key is not None:
        if key.strip("/") not in names:
            raise unknown_name(f"array of {path}", key, names)
        return key.strip("/")
    if not names:
        raise InputError(f"{path} holds no array. Save trajectories in it under the name 'u'.")
    preferred = [name for name in prefer if name in names]
    if preferred or len(names) == 1:
        return (preferred or names)[0]
    raise InputError(
        f"{path} holds the arrays {', '.join(names[:20])}: say which are the trajectories with --key."
    )


def _source(raw: Raw, layout: str | None, name: str) -> Source:
    kind = getattr(raw.dtype, "kind", "?")
    if kind == "c":
        raise InputError(f"{name} is complex. Give its real and imaginary parts as two channels.")
    if kind not in "fiu":
        raise InputError(f"{name} holds {raw.dtype}, but trajectories are numbers. Save it as float32.")
    source = Source(raw, parse_layout(layout, len(raw.shape), name), name)
    if 0 in source.shape:
        raise InputError(
            f"{name} is empty: (samples, times, channels, *points) = {source.shape}. "
            "Give at least one of each, or another --layout."
        )
    if layout is None:
        check_axes(source.shape, name)
    if not 1 <= len(source.shape) - 3 <= 3 or min(source.shape[3:]) < 2:
        raise InputError(
            f"{name} has (samples, times, channels, *points) = {source.shape}, but 1 to 3 axes of at least "
            "two points each are needed. Leave axes of one point out, or give another --layout."
        )
    return source


def _numbers(chosen: Selection, length: int) -> np.ndarray:
    """A selection along one axis as indices, checked."""
    numbers = np.asarray(range(length)[chosen] if isinstance(chosen, slice) else chosen, np.int64)
    if numbers.ndim != 1 or (len(numbers) and (numbers.min() < 0 or numbers.max() >= length)):
        raise InputError(f"{chosen} does not select from {length}. Use numbers from 0 to {length - 1}.")
    return numbers


class _Run(NamedTuple):
    """Where a run of consecutive numbers goes, and the run itself."""

    to: slice
    run: slice


def _runs(numbers: np.ndarray, longest: int) -> Iterator[_Run]:
    """Indices cut into runs of consecutive numbers of at most this length."""
    start = 0
    for end in range(1, len(numbers) + 1):
        broken = end == len(numbers) or numbers[end] != numbers[end - 1] + 1
        if broken or end - start == longest:
            first = int(numbers[start])
            yield _Run(slice(start, end), slice(first, first + end - start))
            start = end
