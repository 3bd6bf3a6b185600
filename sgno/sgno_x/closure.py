"""Products of filtered copies of the state: the form that the nonlinear part of a PDE has."""

from collections.abc import Sequence
from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, PRNGKeyArray

from sgno.sgno_x.multipliers import Multiplier
from sgno.sgno_x.symbols import below, symbol, symbol_names
from sgno.spectral import mode_numbers, mode_shape, namespace, to_modes, to_points
from sgno.spectral.bases import AnyArray, Either


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

    def filters(self, points: tuple[int, ...], cutoff: tuple[int, ...]) -> np.ndarray:
        """The smooth symbols of the factors, `(factors, *modes)`, zero above the cutoff."""
        mask = below(points, cutoff)
        found = [symbol(name.split(":")[1], points) * mask for name in self.factors]
        return np.stack(found) if found else np.zeros((0, *mask.shape), complex)


def mixed_terms(count: int, channels: int) -> tuple[tuple[str, ...], ...]:
    """Products of two filters called `mix`, which are drawn at random, channels in turn."""
    return tuple(
        (f"{j % channels}:mix{2 * j}", f"{j // channels % channels}:mix{2 * j + 1}") for j in range(count)
    )


def starting_filters(
    terms: Terms, points: tuple[int, ...], cutoff: tuple[int, ...], *, key: PRNGKeyArray
) -> np.ndarray | Array:
    """The factors' symbols or, for factors called `mix`, random mixtures of all symbols scaled alike."""
    if not any(":mix" in name for name in terms.factors):
        return terms.filters(points, cutoff)
    basis = Terms([[f"0:{name}" for name in symbol_names(len(points))]]).filters(points, cutoff)
    basis /= np.abs(basis).max(axis=tuple(range(1, basis.ndim)), keepdims=True)
    # The second key drew the latent carry of version 0.1; stored cold starts depend on the split.
    key = jax.random.split(key)[0]
    return jnp.tensordot(jax.random.normal(key, (len(terms.factors), len(basis))), jnp.asarray(basis), axes=1)


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
        kept = _kept(points, cutoff)
        self.w = Multiplier(D[kept], unit if np.ndim(unit) == 0 else np.asarray(unit)[kept])
        self.points = points
        self.cutoff = cutoff

    def __call__(self) -> Complex[AnyArray, "factors *modes"]:
        w, kept = self.w(), _kept(self.points, self.cutoff)
        full = namespace(w).zeros((w.shape[0], *mode_shape(self.points)), dtype=w.dtype)
        if isinstance(full, np.ndarray):
            full[kept] = w
            return full
        return full.at[kept].set(w)


def _kept(points: tuple[int, ...], cutoff: tuple[int, ...]) -> tuple[slice | np.ndarray, ...]:
    """Where the modes up to the cutoff are stored in an array `(factors, *modes)`."""
    along = [np.flatnonzero(np.abs(k) <= c) for k, c in zip(mode_numbers(points), cutoff, strict=True)]
    return slice(None), *np.ix_(*along)


def products(
    v: Complex[Either, "batch channels *modes"],
    D: Sequence[Complex[Either, "*modes"]],
    terms: Terms,
    points: tuple[int, ...],
) -> list[Complex[Either, "batch *modes"]]:
    """q_j(v) = FFT[ prod_{a in term j} IFFT(D_a v_{c(a)}) ], on every mode up to Nyquist.

    Factors are cut off below the dealiasing limit, products are not: what a product feeds into the modes
    above the cutoff is part of the data. NumPy arrays are multiplied on the host.
    """
    fields = [to_points(D_a * v[:, c], points) for D_a, c in zip(D, terms.channels, strict=True)]
    multiplied = [reduce(lambda a, b: a * b, [fields[a] for a in term]) for term in terms.products]
    return [to_modes(q, points) for q in multiplied]
