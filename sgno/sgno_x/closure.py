"""Products of filtered copies of the state: the form that the nonlinear part of a PDE has."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex

from sgno.sgno_x.multiplier import Multiplier
from sgno.sgno_x.symbols import below, symbol
from sgno.spectral import mode_shape, to_modes, to_points


class Terms(eqx.Module):
    """Which products there are: each term multiplies factors, each factor filters one channel."""

    factors: tuple[str, ...] = eqx.field(static=True)
    products: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, names: Sequence[Sequence[str]]):
        """From the names of each term's factors; equal factors are filtered once."""
        self.factors = tuple(dict.fromkeys(name for term in names for name in term))
        self.products = tuple(tuple(self.factors.index(name) for name in term) for term in names)

    @property
    def channels(self) -> np.ndarray:
        """The channel that each factor filters."""
        return np.array([int(name.split(":")[0]) for name in self.factors], dtype=int)

    def start(self, points: tuple[int, ...], cutoff: tuple[int, ...]) -> np.ndarray:
        """The smooth symbols of the factors, `(factors, *modes)`, zero above the cutoff."""
        mask = below(points, cutoff)
        names = [name.split(":")[1] for name in self.factors]
        return np.stack([symbol(name, points) * mask for name in names])


def kept_modes(points: tuple[int, ...], cutoff: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Where the modes up to the cutoff are stored, as an open mesh of indices."""
    axes = [np.r_[0 : c + 1, n - c : n] for n, c in zip(points[:-1], cutoff[:-1], strict=True)]
    return np.ix_(*axes, np.arange(cutoff[-1] + 1))


class Filters(eqx.Module):
    """The filters D of the factors, learned on the modes up to the cutoff only."""

    w: Multiplier
    points: tuple[int, ...] = eqx.field(static=True)
    cutoff: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        D: np.ndarray | Array,
        unit: np.ndarray | float,
        points: tuple[int, ...],
        cutoff: tuple[int, ...],
    ):
        kept = (slice(None), *kept_modes(points, cutoff))
        unit = unit if np.ndim(unit) == 0 else np.asarray(unit)[kept]
        self.w = Multiplier(D[kept], unit)
        self.points = points
        self.cutoff = cutoff

    def __call__(self) -> Complex[Array, "factors *modes"]:
        kept = (slice(None), *kept_modes(self.points, self.cutoff))
        w = self.w()
        full = jnp.zeros((w.shape[0], *mode_shape(self.points)), dtype=w.dtype)
        return full.at[kept].set(w)


def products(
    v: Complex[Array, "batch channels *modes"],
    D: Sequence[Complex[Array, "*modes"]],
    terms: Terms,
    points: tuple[int, ...],
) -> list[Complex[Array, "batch *modes"]]:
    """q_j(v) = FFT[ prod_{a in term j} IFFT(D_a v_{c(a)}) ], on every mode up to Nyquist.

    Factors are cut off below the dealiasing limit, products are not: what a product feeds into the modes
    above the cutoff is part of the data.
    """
    fields = [to_points(D_a * v[:, c], points) for D_a, c in zip(D, terms.channels, strict=True)]
    multiplied = [reduce(mul, [fields[a] for a in term]) for term in terms.products]
    return [to_modes(q, points) for q in multiplied]
