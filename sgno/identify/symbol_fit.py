"""Symbols before modes: weights as differential operators of low order, found with the whole Jacobian.

`refine` corrects each mode by its own response. Where a step changes the state much (a reaction that runs its
course between two frames), modes answer through each other and that leads nowhere. An equation has few
numbers, though: if every multiplier is a polynomial in `ik`, the whole Jacobian is affordable.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import enable_x64
from jaxtyping import Array, Float

from sgno.identify.estimate import Estimate, Weights, without_growth
from sgno.identify.pairs import Pairs
from sgno.sgno_x.model import SGNOX
from sgno.sgno_x.scheme import Multipliers, Scheme
from sgno.sgno_x.symbols import monomials
from sgno.spectral import mode_shape, multiplicity, to_points, wavenumbers

_MAX_STEPS = 60
# Stop when a step changes the unknowns and the squared error by less than this, relatively.
_TOLERANCE = 1e-6
# This many numbers of the next states are fitted: many times the unknowns.
_NUMBERS = 2**17


class Symbols(NamedTuple):
    """Coefficients of `Operators`: rates, coupling of channels, contributions, forcing of the mean."""

    L: Float[Array | np.ndarray, "channels rates"]
    K: Float[Array | np.ndarray, "channels channels"]
    P: Float[Array | np.ndarray, "channels terms contributions"]
    f: Float[Array | np.ndarray, " channels"]


class Operators(NamedTuple):
    """Real differential operators on the modes of a grid, `(count, *modes)`."""

    rates: np.ndarray
    contributions: np.ndarray


def operators(points: tuple[int, ...]) -> Operators:
    """Rates: order two, and (ik)³ and (ik)⁴ summed over the axes. Contributions: order one."""
    unit = max(points) / 2
    k = wavenumbers(points) / unit
    k_squared = (k * k).sum(0)
    higher = np.stack([*(1j * k * k_squared), k_squared**2])
    return Operators(np.concatenate([monomials(points, 2, unit), higher]), monomials(points, 1, unit))


def fit_symbols(step: SGNOX, estimate: Estimate, pairs: Pairs) -> Estimate:
    """The estimate whose weights are symbols, found by Levenberg-Marquardt, with gain 1.

    **Arguments:**

    - `step`: the scheme and its products.
    - `estimate`: where to start; the uncertainties are taken over from it.
    - `pairs`: as many as are needed of them are used.
    """
    grid, basis = step.grid, operators(step.grid.points)
    pairs = pairs.first(max(4, _NUMBERS // (grid.channels * int(np.prod(grid.points)))))
    start = _nearest_symbols(estimate.weights, basis, grid.points)
    known = jax.tree.map(np.asarray, step.multipliers())
    # In double precision: columns of the Jacobian differ by many orders of magnitude.
    with enable_x64(True):
        double = lambda x: jnp.asarray(x, jnp.complex128 if np.iscomplexobj(x) else jnp.float64)
        arguments = jax.tree.map(double, (known, basis, pairs))
        found = _least_squares(jax.tree.map(double, start), arguments, step.terms, grid.points, step.config)
        w = jax.tree.map(np.asarray, _multipliers(found, *arguments[:2]))
    K, f = (
        old if new is None else new for old, new in ((estimate.weights.K, w.K), (estimate.weights.f, w.f))
    )
    L = without_growth(w.Lambda, estimate.may_grow)
    return dataclasses.replace(estimate, weights=Weights(L, K.astype(complex), w.P, f, w.T))


@eqx.filter_jit
def _least_squares(start: Symbols, arguments, terms, points: tuple[int, ...], config) -> Symbols:
    S, stages = config.inner_steps, config.stages

    def residual(symbols: Symbols, arguments) -> Array:
        known, basis, pairs = arguments
        scheme = Scheme(_multipliers(symbols, known, basis), terms, points, inner_steps=S, stages=stages)
        return to_points(scheme.advance(scheme.enter(pairs.now), S), points) - pairs.then

    # Here, because few fits need it and it takes as long to import as a small fit.
    import optimistix as optx

    solver = optx.LevenbergMarquardt(_TOLERANCE, _TOLERANCE)
    options = {"jac": "fwd"}
    found = optx.least_squares(
        residual, solver, start, arguments, options=options, max_steps=_MAX_STEPS, throw=False
    )
    return found.value


def _multipliers(symbols: Symbols, known: Multipliers, basis: Operators) -> Multipliers:
    """The multipliers of the symbols on every mode, with gain 1 and no growth of their own."""
    dtype, modes = known.Lambda.dtype, known.Lambda.shape[1:]
    K, f = known.K, known.f
    if K is not None:
        off_diagonal = symbols.K * (1 - jnp.eye(len(symbols.K)))
        K = jnp.broadcast_to(off_diagonal.reshape(*off_diagonal.shape, *(1,) * len(modes)), K.shape)
        K = K.astype(dtype)
    if f is not None:
        f = jnp.zeros(f.shape, dtype).at[(slice(None), *(0,) * len(modes))].set(symbols.f.astype(dtype))
    return Multipliers(
        Lambda=jnp.tensordot(symbols.L.astype(dtype), basis.rates, axes=1),
        m=jnp.zeros_like(known.m),
        K=K,
        D=known.D,
        P=jnp.tensordot(symbols.P.astype(dtype), basis.contributions, axes=1),
        f=f,
        T=jnp.ones_like(known.T),
        r=known.r,
    )


def _nearest_symbols(w: Weights, basis: Operators, points: tuple[int, ...]) -> Symbols:
    """The symbols next to weights by modes, the lowest modes counting most: they are known best."""
    channels, terms = w.P.shape[:2]
    weight = np.sqrt(multiplicity(points)) / (1 + (wavenumbers(points) ** 2).sum(0))

    def nearest(w: np.ndarray, operators: np.ndarray) -> np.ndarray:
        columns = (weight * operators).reshape(len(operators), -1).T
        b = (weight * w).reshape(-1)
        A, b = (np.concatenate([x.real, x.imag]) for x in (columns, b))
        return np.linalg.lstsq(A, b, rcond=1e-6)[0]

    rates = np.stack([nearest(L, basis.rates) for L in w.L])
    contributions = [nearest(P, basis.contributions) for P in w.P.reshape(-1, *mode_shape(points))]
    axes = tuple(range(2, w.K.ndim))
    K = (weight**2 * np.real(w.K)).sum(axes) / (weight**2).sum()
    f = np.real(w.f.reshape(channels, -1)[:, 0])
    return Symbols(rates, K, np.stack(contributions).reshape(channels, terms, -1), f)
