"""Known inputs of trajectories: parameters, fields and controls, which are given and never predicted.

An input is kept as an array `(samples or 1, frames or 1, *points or 1s)` beside the trajectories. A model
sees it as channels behind those of the state; one that depends on time is linear between two frames, and is
then seen at both ends of a step, unless it holds its value until the next frame.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError, unknown_name
from sgno.io.source import Selection, Source, open_array, source_keys


@dataclass(frozen=True)
class Inputs:
    """Arrays by name, `(samples or 1, frames or 1, *points or 1s)`, and which of them hold between frames."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    holds: frozenset[str] = frozenset()

    @staticmethod
    def make(
        given: Mapping[str, np.ndarray],
        samples: int,
        frames: int | None,
        points: tuple[int, ...],
        *,
        holds: Collection[str] = (),
    ) -> "Inputs":
        """The inputs of trajectories of this shape; without `frames` the controls may have any number.

        **Raises:** `InputError` for an array that does not fit, that fits in two ways, or that is not finite.
        """
        for name in holds:
            if name not in given:
                raise unknown_name("input to hold between frames", name, list(given))
        arrays = {name: shaped(name, values, samples, frames, points) for name, values in given.items()}
        return Inputs(arrays, frozenset(holds))

    @staticmethod
    def beside(source: Source, given: Mapping[str, np.ndarray], *, holds: Collection[str] = ()) -> "Inputs":
        """The inputs of trajectories."""
        samples, frames, _, *points = source.shape
        return Inputs.make(given, samples, frames, tuple(points), holds=holds)

    @staticmethod
    def join(each: Sequence["Inputs"], samples: Sequence[int]) -> "Inputs":
        """Those of several files, one after the other."""
        arrays = {}
        for name in each[0].arrays:
            parts = [one.arrays[name] for one in each]
            inner = np.broadcast_shapes(*(part.shape[1:] for part in parts))
            wide = [np.broadcast_to(p, (n, *inner)) for p, n in zip(parts, samples, strict=True)]
            arrays[name] = np.concatenate(wide)
        return Inputs(arrays, each[0].holds)

    def with_steps(self, name: str, steps: np.ndarray, dims: int) -> "Inputs":
        """With the times between frames, `(samples, 1 or frames)`, as one more input in this many
        dimensions."""
        if name in self.arrays:
            raise InputError(f"'{name}' is both an input and the time between frames. Name it once.")
        return Inputs({**self.arrays, name: steps.reshape(*steps.shape, *(1,) * dims)}, self.holds | {name})

    def take(self, samples: Selection, frames: Selection) -> "Inputs":
        """Those of some trajectories and frames."""
        rows = lambda a: a[samples] if a.shape[0] > 1 else a
        cut = lambda a: rows(a)[:, frames] if a.shape[1] > 1 else rows(a)
        return Inputs({name: cut(a) for name, a in self.arrays.items()}, self.holds)

    def specs(self) -> tuple["InputSpec", ...]:
        return tuple(
            InputSpec(name, control=a.shape[1] > 1, holds=name in self.holds)
            for name, a in self.arrays.items()
        )

    def channels(
        self, specs: Sequence["InputSpec"], rows: np.ndarray, frames: np.ndarray, points: tuple[int, ...]
    ) -> np.ndarray:
        """As a model sees them in some frames of some trajectories, `(rows, frames, channels, *points)`.

        What is seen at the end of a step from the last frame is not known, so it is the value of that frame.
        """
        parts = []
        for spec in specs:
            a = self.arrays[spec.name]
            a = a[rows] if a.shape[0] > 1 else a
            for at in (frames, np.minimum(frames + 1, a.shape[1] - 1))[: spec.channels]:
                part = a[:, at] if a.shape[1] > 1 else a
                parts.append(np.broadcast_to(part, (len(rows), len(frames), *points)))
        return np.stack(parts, axis=2).astype(np.float32)


@dataclass(frozen=True)
class InputSpec:
    """What a model knows of an input: its name, whether it depends on time, and whether it holds between
    frames or is linear."""

    name: str
    control: bool = False
    holds: bool = False

    @property
    def channels(self) -> int:
        """A control that changes between frames is seen at the start and at the end of a step."""
        return 2 if self.control and not self.holds else 1


def shaped(
    name: str, given: np.ndarray, samples: int, frames: int | None, points: tuple[int, ...]
) -> np.ndarray:
    """An input as `(samples or 1, frames or 1, *points or 1s)`: a number, `(samples,)`, `(*points)`,
    `(samples, *points)`, `(samples, frames)`, `(samples, frames, *points)`, or that form itself.

    **Raises:** `InputError` for another shape, for one that could be two of these, and for values that are
    not finite.
    """
    a = np.asarray(given)
    if a.dtype.kind not in "fiub":
        raise InputError(f"Input '{name}' holds {a.dtype}, but an input is made of numbers.")
    times = (a.shape[1] if a.ndim > 1 else 1) if frames is None else frames
    ones = (1,) * len(points)
    forms: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), (1, 1, *ones)),
        ((samples,), (samples, 1, *ones)),
        (points, (1, 1, *points)),
        ((samples, *points), (samples, 1, *points)),
        ((samples, times), (samples, times, *ones)),
        ((samples, times, *points), (samples, times, *points)),
    )
    readings: set[tuple[int, ...]] = {reading for shape, reading in forms if shape == a.shape}
    is_full = a.ndim == 2 + len(points) and all(
        n in (1, whole) for n, whole in zip(a.shape, (samples, times, *points), strict=True)
    )
    readings = {a.shape} if is_full else readings
    if not readings:
        raise InputError(
            f"Input '{name}' has the shape {a.shape}, but there are {samples} samples, {times} frames and "
            f"{'x'.join(map(str, points))} points. Give (samples,), (*points), (samples, *points), "
            "(samples, times) or (samples, times, *points)."
        )
    if len(readings) > 1:
        shown = " or ".join(str(reading) for reading in sorted(readings))
        raise InputError(
            f"Input '{name}' has the shape {a.shape}, which can be read in two ways. Give it as "
            f"(samples, times, *points) with ones for what it does not depend on: {shown}."
        )
    if not np.isfinite(a).all():
        raise InputError(
            f"Input '{name}' has values that are not finite. Leave out the samples that have them."
        )
    return a.reshape(readings.pop())


def time_steps(given: Any, samples: int, frames: int) -> np.ndarray:
    """The times between frames as `(samples, 1 or frames)`; after the last frame none is known, so it is that
    before.

    **Raises:** `InputError` for another shape, and for times that are not positive.
    """
    dt = np.asarray(given, float)
    if dt.shape not in ((), (1,), (samples,), (samples, 1), (samples, frames - 1), (samples, frames)):
        raise InputError(
            f"dt has the shape {dt.shape}, but there are {samples} samples of {frames} frames. Give a "
            "positive number, (samples,) or (samples, frames - 1)."
        )
    if not (np.isfinite(dt) & (dt > 0)).all():
        raise InputError(f"dt must be positive, but its smallest value is {np.nanmin(dt):g}.")
    if dt.ndim < 2:
        return np.broadcast_to(dt.reshape(-1, 1), (samples, 1))
    return dt if dt.shape[1] in (1, frames) else np.concatenate([dt, dt[:, -1:]], axis=1)


def input_arrays(path: Path, names: Sequence[str], part: str | None) -> dict[str, np.ndarray]:
    """Arrays of a file that lie beside its trajectories: `nu`, or `nu_train` beside the array `train`.

    **Raises:** `InputError` if the file has no such array.
    """
    known, found = source_keys(path) if names else [], {}
    for name in names:
        apart = f"{name}_{part}"
        if apart not in known and name not in known:
            raise unknown_name(f"input in {path}", apart if part in ("train", "test") else name, known)
        found[name] = np.asarray(open_array(path, apart if apart in known else name, ())[0][()])
    return found


class Conditions(Source):
    """Trajectories with what a step is conditioned on as further channels: earlier frames, then known inputs.

    `(samples, times - history + 1, history * channels + input channels, *points)`, the latest frame first.
    """

    def __init__(
        self,
        source: Source,
        inputs: Inputs,
        history: int = 1,
        specs: Sequence[InputSpec] | None = None,
    ):
        if history > source.shape[1] - 1:
            raise InputError(
                f"--history {history} needs trajectories of at least {history + 1} frames, but {source.name} "
                f"has {source.shape[1]}."
            )
        self._source, self._inputs, self._history = source, inputs, history
        self._specs = inputs.specs() if specs is None else tuple(specs)
        self.name = source.name
        samples, times, channels, *points = source.shape
        self.given = sum(spec.channels for spec in self._specs)
        self.shape = (samples, times - history + 1, history * channels + self.given, *points)

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        rows = np.arange(self.shape[0])[samples]
        latest = np.arange(self.shape[1])[times] + self._history - 1
        seen = [latest - back for back in range(self._history)]
        frames = np.unique(np.concatenate(seen))
        states = self._source.read(rows, frames)
        parts = [states[:, np.searchsorted(frames, at)] for at in seen]
        if self.given:
            parts.append(self._inputs.channels(self._specs, rows, latest, self.shape[3:]))
        return np.concatenate(parts, axis=2)

    def origin(self, sample: int, time: int) -> tuple[int, int]:
        return self._source.origin(sample, time + self._history - 1)
