"""Weights of one grid continued to another: symbols fitted to what was learned, then read off further out."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from sgno.sgno_x.closure import Terms
from sgno.sgno_x.scheme import Multipliers
from sgno.sgno_x.symbols import below, monomials, symbol
from sgno.spectral import mode_numbers, mode_shape, shared_index

_RATE_ORDER = 4
_CONTRIBUTION_ORDER = 2


def extend(
    w: Multipliers,
    terms: Terms,
    units: tuple[Float[Array, "channels *modes"], Float[Array, "channels terms *modes"]],
    cutoff: tuple[int, ...],
    of: tuple[int, ...],
    to: tuple[int, ...],
) -> Multipliers:
    """The multipliers on the modes of another grid.

    Modes that the grids share keep their multipliers. Further modes of `Lambda` and `P` continue the
    constant-coefficient differential operator, sum_a c_a (ik)^a with real c_a, that fits the learned
    multipliers best, each mode weighted by how well it is known (`units`, their uncertainties); factors
    continue as the symbols they started from; forcing, coupling and growth stay zero there, and the trapping
    radius is that of the nearest mode.
    """
    rate_unit, contribution_unit = units
    rates = _continue(w.Lambda, rate_unit, of, to, order=_RATE_ORDER)
    channels, num_terms, *modes = w.P.shape
    flat, flat_unit = (x.reshape(channels * num_terms, *modes) for x in (w.P, contribution_unit))
    P = _continue(flat, flat_unit, of, to, order=_CONTRIBUTION_ORDER)
    zero = jnp.zeros(mode_shape(to), w.Lambda.dtype)
    return Multipliers(
        Lambda=_shared(w.Lambda, of, to, jnp.minimum(rates.real, 0.0) + 1j * rates.imag),
        m=_shared(w.m, of, to, zero.real),
        K=None if w.K is None else _shared(w.K, of, to, zero.astype(w.K.dtype)),
        D=_continue_factors(w.D, terms, cutoff, of, to),
        P=_shared(w.P, of, to, P.reshape(channels, num_terms, *zero.shape)),
        f=None if w.f is None else _shared(w.f, of, to, zero),
        T=_shared(w.T, of, to, jnp.ones_like(zero)),
        r=None if w.r is None else _nearest(w.r, of, to),
    )


def _shared(values: Array, of: tuple[int, ...], to: tuple[int, ...], fill: Array) -> Array:
    """`fill`, given on the modes of grid `to`, with the shared modes taken from `values` on grid `of`."""
    source, target = shared_index(of, to)
    full = jnp.broadcast_to(fill, (*values.shape[: -len(of)], *mode_shape(to)))
    return full.at[target].set(values[source])


def _nearest(values: Array, of: tuple[int, ...], to: tuple[int, ...]) -> Array:
    """Each mode of grid `to` takes the value of the nearest mode of grid `of`."""
    index = [np.clip(k, -(n // 2) + 1, n // 2 - 1) % n for n, k in zip(of, mode_numbers(to), strict=True)]
    return values[(..., *np.ix_(*index))]


def _continue(
    w: Complex[Array, "count *modes"],
    unit: Float[Array, "count *modes"],
    of: tuple[int, ...],
    to: tuple[int, ...],
    *,
    order: int,
) -> Complex[Array, "count *further"]:
    """The best-fitting real differential operator of at most this order, on the modes of grid `to`."""
    scale = max(of) / 2
    basis = monomials(of, order, scale).reshape(-1, int(np.prod(mode_shape(of))))
    # Real coefficients: fit real and imaginary parts as separate equations.
    A = jnp.asarray(np.concatenate([np.real(basis), np.imag(basis)], axis=1).T, dtype=unit.dtype)
    further = jnp.asarray(monomials(to, order, scale), dtype=w.dtype)
    if not w.shape[0]:
        return jnp.zeros((0, *mode_shape(to)), w.dtype)
    rows = []
    for c in range(w.shape[0]):
        w_c, unit_c = w[c].reshape(-1), unit[c].reshape(-1)
        # Capped, or a handful of modes known to rounding would decide alone.
        weight = 1 / jnp.maximum(unit_c, 1e-2 * jnp.median(unit_c))
        weight = jnp.concatenate([weight, weight])
        b = jnp.concatenate([jnp.real(w_c), jnp.imag(w_c)])
        coefficients = jnp.linalg.lstsq(A * weight[:, None], b * weight)[0]
        rows.append(jnp.tensordot(coefficients.astype(w.dtype), further, axes=1))
    return jnp.stack(rows)


def _continue_factors(
    D: Complex[Array, "factors *modes"],
    terms: Terms,
    cutoff: tuple[int, ...],
    of: tuple[int, ...],
    to: tuple[int, ...],
) -> Complex[Array, "factors *further"]:
    """Factors as the symbols they started from, up to the same fraction of Nyquist; drawn ones stop."""
    if D.shape[0] == 0:
        return jnp.zeros((0, *mode_shape(to)), D.dtype)
    mask = below(to, tuple((c + 1) * m // n - 1 for c, n, m in zip(cutoff, of, to, strict=True)))
    names = [name.split(":")[1] for name in terms.factors]
    fill = np.stack([0 * mask if name.startswith("mix") else symbol(name, to) * mask for name in names])
    # Modes between the two cutoffs were zero on the old grid only to dealias it.
    known = _shared(D, of, to, jnp.zeros(mode_shape(to), D.dtype))
    return jnp.where(known != 0, known, jnp.asarray(fill, D.dtype))
