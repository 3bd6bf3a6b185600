"""The shape of a state: all that a model knows of its data."""

from dataclasses import dataclass

from sgno.errors import InputError


@dataclass(frozen=True)
class Grid:
    """The shape of one state, `(channels, *points)`."""

    channels: int
    points: tuple[int, ...]

    def __post_init__(self):
        if self.channels < 1 or not self.points or min(self.points) < 2:
            raise InputError(
                f"Grid(channels={self.channels}, points={self.points}) is not a state. "
                "Use at least one channel and at least two points along each axis."
            )
        if len(self.points) > 3:
            raise InputError(f"A grid has 1, 2 or 3 axes, but points={self.points} has {len(self.points)}.")

    @property
    def num_spatial_dims(self) -> int:
        return len(self.points)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.points)
