"""Units in which a model learns: each channel with its mean taken off and divided by its scale."""

import dataclasses
from typing import Literal

import numpy as np

from sgno.io.source import Selection, Source
from sgno.io.survey import Moments

Normalise = Literal["none", "scale", "standard"]
# A channel that varies by less than this part of its size is constant, and its spread is rounding.
_CONSTANT = 1e-6


@dataclasses.dataclass(frozen=True)
class Units:
    """`v = (u - mean) / scale`, channel by channel."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]

    def apply(self, train: np.ndarray | Source) -> np.ndarray | Source:
        """Trajectories in these units; those of a source are converted as they are read."""
        shape = (-1, *(1,) * (len(train.shape) - 3))
        m, s = (np.asarray(values, np.float32).reshape(shape) for values in (self.mean, self.scale))
        return _Converted(train, m, s) if isinstance(train, Source) else (train - m) / s


class _Converted(Source):
    """Another source in other units."""

    def __init__(self, source: Source, mean: np.ndarray, scale: np.ndarray):
        self._source, self._mean, self._scale = source, mean, scale
        self.name, self.shape = source.name, source.shape

    def read(self, samples: Selection = slice(None), times: Selection = slice(None)) -> np.ndarray:
        states = self._source.read(samples, times)
        np.subtract(states, self._mean, out=states)
        return np.divide(states, self._scale, out=states)


def choose_units(normalise: Normalise, moments: Moments | None) -> Units | None:
    """The units that channels of these moments call for.

    - `standard`: mean 0 and standard deviation 1, for networks.
    - `scale`: root mean square 1, zero kept where it is: a linear step stays linear and a product of states
      a product, so it is what models take that have the form of an equation.
    - `none`: the units of the data.
    """
    if normalise == "none" or moments is None:
        return None
    if normalise == "scale":
        return Units((0.0,) * len(moments.rms), tuple(rms or 1.0 for rms in moments.rms))
    scale = (
        std if std > _CONSTANT * rms else max(abs(mean), 1.0)
        for mean, std, rms in zip(moments.mean, moments.std, moments.rms, strict=True)
    )
    return Units(moments.mean, tuple(scale))
