"""Which trajectories are trained on, which judge a choice, and which are looked at last."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from sgno.errors import InputError
from sgno.io.source import Selection, Source

# Of trajectories that stay on disk: what a start is fitted to, and what is scored, in all and at once.
_EXCERPT_BYTES = 64 * 2**20
_SCORED_BYTES = 128 * 2**20
_SCORED_STATES_BYTES = 16 * 2**20


class Part(Source):
    """Some samples and times of another source."""

    def __init__(self, source: Source, samples: np.ndarray, times: slice = slice(None)):
        self._source, self._samples = source, samples
        self._times = np.arange(source.shape[1])[times]
        self.name = source.name
        self.shape = (len(samples), len(self._times), *source.shape[2:])

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        return self._source.read(self._samples[samples], self._times[times])

    def origin(self, sample: int, time: int) -> tuple[int, int]:
        return self._source.origin(int(self._samples[sample]), int(self._times[time]))


class SplitParts(NamedTuple):
    """The three parts. Too few trajectories leave no validation part."""

    train: Source
    validation: Source | None
    test: Source


@dataclasses.dataclass(frozen=True)
class Split:
    """How trajectories are divided: fractions below one or counts from one on, drawn at random by `seed`.

    A single trajectory is cut in time instead: its end is the test, what lies before it the validation.
    """

    validation: float | int = 0.1
    test: float | int = 0.1
    seed: int = 0

    def __post_init__(self):
        for name in ("validation", "test"):
            value = getattr(self, name)
            if not np.isfinite(value) or value < 0 or (value > 1 and value != int(value)):
                raise InputError(
                    f"{name}={value} is no part of the data. Use a fraction such as 0.1, or a whole number "
                    "of trajectories."
                )

    def __call__(self, source: Source, test: Source | None = None) -> SplitParts:
        """The parts of a source, or of one and a test part that is given.

        **Raises:** `InputError` if nothing would be left to train on or to test on.
        """
        if source.shape[1] < 2:
            raise InputError(
                f"{source.name} has {source.shape[1]} time step (samples, times, channels, *points) = "
                f"{source.shape}, but a step is learned from one time to the next. Give at least two, or "
                "another --layout."
            )
        if test is not None:
            return self._given(source, test)
        if source.shape[0] == 1:
            return self._in_time(source)
        samples = source.shape[0]
        order = np.random.default_rng(self.seed).permutation(samples)
        tested = max(1, _count(self.test, samples))
        # Two trajectories are too few for three parts.
        validated = _count(self.validation, samples) if samples > 2 else 0
        if tested + validated >= samples:
            raise InputError(
                f"{source.name} has {samples} trajectories: {tested} for testing and {validated} for "
                "validation leave none to train on. Give smaller --test and --validation, or more of them."
            )
        cut = np.split(order, [tested, tested + validated])
        test_part, validation, train = (Part(source, np.sort(part)) for part in cut)
        return SplitParts(train, validation if validated else None, test_part)

    def _given(self, source: Source, test: Source) -> SplitParts:
        if test.shape[2:] != source.shape[2:] or test.shape[1] < 2:
            raise InputError(
                f"{test.name} has (samples, times, channels, *points) = {test.shape}, but {source.name} has "
                f"{source.shape}. Test on the same channels and grid, with at least two times."
            )
        samples = source.shape[0]
        validated = min(_count(self.validation, samples), samples - 1)
        order = np.random.default_rng(self.seed).permutation(samples)
        train, validation = Part(source, np.sort(order[validated:])), Part(source, np.sort(order[:validated]))
        return SplitParts(train, validation if validated else None, test)

    def _in_time(self, source: Source) -> SplitParts:
        steps = source.shape[1] - 1
        tested, validated = (max(1, _count(part, steps)) for part in (self.test, self.validation))
        validated = validated if self.validation else 0
        left = steps - tested - validated
        if left < 1:
            raise InputError(
                f"{source.name} is one trajectory of {steps} steps: {tested} for testing and {validated} for "
                "validation leave none to train on. Give smaller --test and --validation, or a longer one."
            )
        one = np.zeros(1, int)
        # Neighbouring parts share a state: it ends the steps of one and begins those of the next.
        validation = Part(source, one, slice(left, left + validated + 1)) if validated else None
        return SplitParts(
            Part(source, one, slice(0, left + 1)), validation, Part(source, one, slice(steps - tested, None))
        )


def _count(part: float | int, of: int) -> int:
    """A fraction as a number of trajectories, at least one if it is not zero; a count as it is."""
    if part >= 1:
        return int(part)
    return max(1, round(part * of)) if part > 0 else 0


def excerpt(trajectories: Any) -> Any:
    """An array as it is; of a source, whole trajectories drawn evenly, as many as memory should hold."""
    if not isinstance(trajectories, Source):
        return trajectories
    samples, times = _fitting(trajectories, _EXCERPT_BYTES)
    chosen = np.linspace(0, trajectories.shape[0] - 1, samples).astype(int)
    return trajectories.read(chosen, slice(0, times))


def scored_part(part: Source) -> Source:
    """What is scored of a part that is too large for memory."""
    samples, times = _fitting(part, _SCORED_BYTES)
    at_once = max(1, _SCORED_STATES_BYTES // (4 * math.prod(part.shape[2:])))
    return Part(part, np.arange(min(samples, at_once)), slice(0, times))


def _fitting(part: Source, most_bytes: int) -> tuple[int, int]:
    """How many samples, and how many times of each, fit into some bytes: all times as long as one fits."""
    samples, times = part.shape[:2]
    state = 4 * math.prod(part.shape[2:])
    return (
        int(np.clip(most_bytes // (times * state), 1, samples)),
        int(np.clip(most_bytes // state, 2, times)),
    )
