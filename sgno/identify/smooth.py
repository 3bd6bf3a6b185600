"""Symbols before modes: weights as differential operators of low order, found with the whole Jacobian.

`refine` corrects each mode by its own response. Where a step changes the state much (a reaction that runs its
course between two frames), modes answer through each other and that leads nowhere. An equation has few
numbers, though: with every multiplier a polynomial in `ik`, Gauss-Newton can afford the whole Jacobian.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from sgno.identify.fit import Fit, without_growth
from sgno.identify.screening import Pairs
from sgno.sgno_x.prepared import PreparedSGNOX, Weights
from sgno.sgno_x.step import SGNOX
from sgno.sgno_x.symbols import monomials
from sgno.spectral import mode_shape, multiplicity, wavenumbers
from sgno.step import batch

_ITERATIONS = 40
# Stop when an iteration takes less than this from the squared error.
_WORTHWHILE = 0.99
# So many numbers of the next states are fitted: they are many times the unknowns.
_NUMBERS = 2**17
_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e6


class Symbols(NamedTuple):
    """Coefficients of `Basis`: rates, coupling of channels, contributions, and the forcing of the mean."""

    L: Float[Array, "channels rates"]
    K: Float[Array, "channels channels"]
    P: Float[Array, "channels terms contributions"]
    f: Float[Array, " channels"]


class Basis(NamedTuple):
    """Real differential operators on the modes of a grid, `(count, *modes)`."""

    rates: np.ndarray
    contributions: np.ndarray


def basis(points: tuple[int, ...]) -> Basis:
    """Rates: order two, and (ik)³ and (ik)⁴ summed over the axes. Contributions: order one."""
    unit = max(points) / 2
    k = wavenumbers(points) / unit
    k_squared = (k * k).sum(0)
    higher = np.stack([*(1j * k * k_squared), k_squared**2])
    return Basis(np.concatenate([monomials(points, 2, unit), higher]), monomials(points, 1, unit))


def fit_symbols(step: SGNOX, fit: Fit, pairs: Pairs) -> Fit:
    """The fit whose weights are symbols, found by damped Gauss-Newton from `fit`, with gain 1.

    **Arguments:**

    - `step`: the scheme and its products.
    - `fit`: where to start; what is left open of each weight is taken over from it.
    - `pairs`: those for fitting are used, as many as are needed.
    """
    grid, shapes = step.grid, basis(step.grid.points)
    state_size = grid.channels * int(np.prod(grid.points))
    now, then = pairs.part(held=False, most=max(4, _NUMBERS // state_size))
    start = _nearest_symbols(fit, shapes, grid.points)
    vector, unravel = ravel_pytree(start)
    known = step.weights()
    assert step.config.inner_steps is not None and step.config.stages is not None
    scheme = {"inner_steps": step.config.inner_steps, "stages": step.config.stages}

    @jax.jit
    def residual(x: Array) -> Array:
        weights = _weights(unravel(x), shapes, known, forced=step.forcing is not None)
        ready = PreparedSGNOX(weights, step.terms, grid, **scheme)
        return (batch(ready, jnp.asarray(now)) - jnp.asarray(then)).reshape(-1)

    @jax.jit
    def jacobian(x: Array) -> Array:
        return jax.lax.map(lambda e: jax.jvp(residual, (x,), (e,))[1], jnp.eye(x.size, dtype=x.dtype))

    found = unravel(jnp.asarray(_descend(residual, jacobian, np.asarray(vector, float)), jnp.float32))
    weights = _weights(found, shapes, known, forced=step.forcing is not None)
    coupling = fit.K if weights.K is None else np.asarray(weights.K, complex)
    return dataclasses.replace(
        fit,
        L=without_growth(np.asarray(weights.Lambda, complex), fit.may_grow),
        K=coupling,
        P=np.asarray(weights.P, complex),
        f=fit.f if weights.f is None else np.asarray(weights.f, complex),
        T=np.ones_like(fit.T),
    )


def _descend(residual, jacobian, x: np.ndarray) -> np.ndarray:
    """Levenberg-Marquardt, its small systems in float64: they are badly conditioned."""
    damping = _DAMPING
    r = np.asarray(residual(jnp.asarray(x, jnp.float32)), float)
    for _ in range(_ITERATIONS):
        J = np.asarray(jacobian(jnp.asarray(x, jnp.float32)), float)
        size = np.sqrt((J * J).sum(1)) + 1e-30
        J = J / size[:, None]
        normal, slope = J @ J.T, J @ r
        while damping < _MOST_DAMPING:
            trial = x - np.linalg.solve(normal + damping * np.eye(len(x)), slope) / size
            left = np.asarray(residual(jnp.asarray(trial, jnp.float32)), float)
            # Not a number is not less.
            if left @ left < r @ r:
                break
            damping *= 10
        else:
            return x
        gained = left @ left < _WORTHWHILE * (r @ r)
        x, r, damping = trial, left, max(damping / 10, _LEAST_DAMPING)
        if not gained:
            return x
    return x


def _weights(symbols: Symbols, shapes: Basis, known: Weights, *, forced: bool) -> Weights:
    """The multipliers of the symbols on every mode."""
    modes = known.Lambda.shape[1:]
    rates, contributions = (jnp.asarray(b, known.Lambda.dtype) for b in shapes)
    f = None
    if forced:
        origin = (slice(None), *(0,) * len(modes))
        f = jnp.zeros_like(known.Lambda).at[origin].set(symbols.f.astype(known.Lambda.dtype))
    K = known.K
    if K is not None:
        off_diagonal = symbols.K * (1 - jnp.eye(len(symbols.K)))
        K = jnp.broadcast_to(off_diagonal.reshape(*off_diagonal.shape, *(1,) * len(modes)), K.shape)
        K = K.astype(known.Lambda.dtype)
    return eqx.tree_at(
        lambda w: (w.Lambda, w.m, w.K, w.P, w.f, w.T),
        known,
        (
            jnp.tensordot(symbols.L.astype(rates.dtype), rates, axes=1),
            jnp.zeros_like(known.m),
            K,
            jnp.tensordot(symbols.P.astype(rates.dtype), contributions, axes=1),
            f,
            jnp.ones_like(known.T),
        ),
        is_leaf=lambda x: x is None,
    )


def _nearest_symbols(fit: Fit, shapes: Basis, points: tuple[int, ...]) -> Symbols:
    """The symbols next to a fit by modes, its lowest modes counting most: they are known best."""
    channels, terms = fit.P.shape[:2]
    k_squared = (wavenumbers(points) ** 2).sum(0)
    weight = np.sqrt(multiplicity(points)) / (1 + k_squared)

    def nearest(w: np.ndarray, operators: np.ndarray) -> np.ndarray:
        columns = (weight * operators).reshape(len(operators), -1).T
        A = np.concatenate([columns.real, columns.imag])
        b = (weight * w).reshape(-1)
        return np.linalg.lstsq(A, np.concatenate([b.real, b.imag]), rcond=1e-6)[0]

    rates = np.stack([nearest(L, shapes.rates) for L in fit.L])
    contributions = [nearest(P, shapes.contributions) for P in fit.P.reshape(-1, *mode_shape(points))]
    constant = lambda w: float((weight**2 * np.real(w)).sum() / (weight**2).sum())
    K = np.array([[constant(fit.K[c, d]) for d in range(channels)] for c in range(channels)])
    f = np.real(fit.f.reshape(channels, -1)[:, 0])
    P = np.stack(contributions).reshape(channels, terms, -1)
    return Symbols(*(jnp.asarray(x, jnp.float32) for x in (rates, K, P, f)))
