"""The order of the axes in a user's array, and the one order everything here works in."""

import dataclasses

import numpy as np

from sgno.errors import InputError

CANONICAL = "sample time channel space"
_SPACE = ("x", "y", "z")
_WORDS = ("sample", "time", "channel", "space", *_SPACE)
# Words of other libraries, and what they are called here.
_OTHER_WORDS = {
    **dict.fromkeys(("batch", "trajectory", "run", "n", "b", "s"), "sample"),
    **dict.fromkeys(("frame", "step", "snapshot", "t"), "time"),
    **dict.fromkeys(("feature", "variable", "field", "component", "c"), "channel"),
    **dict.fromkeys(("point", "grid", "spatial"), "space"),
    **dict.fromkeys(("width", "lon", "longitude"), "x"),
    **dict.fromkeys(("height", "lat", "latitude"), "y"),
    "depth": "z",
}
# An axis of so few points is more likely one of channels, and so many channels more likely points.
_FEW_POINTS, _MANY_CHANNELS = 4, 8


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which axis of an array is which: `axes[i]` is the place in the array of the i-th canonical axis
    (sample, time, channel, then space), or None where the array has no such axis and one of length one is
    meant."""

    axes: tuple[int | None, ...]

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The canonical shape of an array of this shape."""
        return tuple(1 if axis is None else shape[axis] for axis in self.axes)

    def index(self, samples: slice, times: slice) -> tuple[slice, ...]:
        """The index into the array that selects samples and times."""
        found = [slice(None)] * sum(axis is not None for axis in self.axes)
        for chosen, axis in zip((samples, times), self.axes, strict=False):
            if axis is not None:
                found[axis] = chosen
        return tuple(found)

    def canonical(self, part: np.ndarray) -> np.ndarray:
        """A part of the array, with its axes in the canonical order (a view)."""
        present = [axis for axis in self.axes if axis is not None]
        part = np.transpose(part, present)
        for place, axis in enumerate(self.axes):
            if axis is None:
                part = np.expand_dims(part, place)
        return part


def parse_layout(text: str | None, ndim: int, what: str) -> Layout:
    """The layout that a text such as `"sample time space channel"` means for an array of `ndim` axes.

    One `space` stands for all spatial axes; `x y z` name them one by one. A missing `channel` or `sample`
    means an axis of one. Without a text the layout is `sample time channel space`.

    **Raises:** `InputError` for an unknown or repeated word, or if words and axes do not match.
    """
    if text is None and ndim < 4:
        raise InputError(
            f"{what} has {ndim} axes, but {CANONICAL} needs at least 4. Say what the axes are, for example "
            '--layout "sample time space" for one channel or --layout "time space" for a single trajectory.'
        )
    text = CANONICAL if text is None else text
    words = [_singular(word) for word in text.replace(",", " ").split()]
    for word in words:
        if word not in _WORDS:
            hint = (
                f"Here it is '{_OTHER_WORDS[word]}'." if word in _OTHER_WORDS else f"Use {', '.join(_WORDS)}."
            )
            raise InputError(f"The layout '{text}' has the word '{word}'. {hint}")
        if words.count(word) > 1:
            raise InputError(f"The layout '{text}' names '{word}' twice. Name each axis once.")
    spatial = [word for word in _SPACE if word in words]
    if "time" not in words:
        raise InputError(f"The layout '{text}' has no time. Steps are learned from one time to the next.")
    if bool(spatial) == ("space" in words):
        raise InputError(f"The layout '{text}' must say either 'space' or 'x', 'x y' or 'x y z'.")
    if spatial and spatial != list(_SPACE[: len(spatial)]):
        raise InputError(f"The layout '{text}' names {' '.join(spatial)}: use 'x', 'x y' or 'x y z'.")
    dims = ndim - len(words) + 1 if "space" in words else len(spatial)
    if not 1 <= dims <= 3 or (spatial and len(words) != ndim):
        raise InputError(
            f"{what} has {ndim} axes, but the layout '{text}' names {len(words)}"
            f"{'' if spatial else f', which leaves {dims} for space'}. "
            "Name every axis of the array, with 1 to 3 of them in space."
        )
    if not spatial:
        at = words.index("space")
        words[at : at + 1] = spatial = list(_SPACE[:dims])
    wanted = ("sample", "time", "channel", *spatial)
    return Layout(tuple(words.index(word) if word in words else None for word in wanted))


def check_axes(shape: tuple[int, ...], what: str) -> None:
    """Refuse an array `(samples, times, channels, *points)` that looks as if its channels came last.

    **Raises:** `InputError` that names both layouts; with either of them nothing is refused.
    """
    channels, points = shape[2], shape[3:]
    if channels > _MANY_CHANNELS and points[-1] <= _FEW_POINTS < min((channels, *points[:-1])):
        grid = "x".join(map(str, points))
        raise InputError(
            f"{what} has the shape {shape}, which without a layout is {channels} channels on {grid} points: "
            'are the channels last? Then use --layout "sample time space channel" (layout= in Python). If '
            f'it is right as it is, --layout "{CANONICAL}".'
        )


def _singular(word: str) -> str:
    word = word.strip().lower()
    return word[:-1] if word.endswith("s") else word
