"""Rates, contributions, forcing and gain by least squares, mode by mode, through the scheme itself."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int

from sgno.grid import Grid
from sgno.identify.pairs import Pairs, SplitPairs, block_size
from sgno.identify.regression import Gram
from sgno.identify.selection import Selection, host_products
from sgno.progress import tell
from sgno.sgno_x.closure import Filters, Terms
from sgno.sgno_x.model import SGNOX
from sgno.sgno_x.multipliers import Coupling, Growth, Multiplier, Rates
from sgno.sgno_x.scheme import Scheme
from sgno.spectral import mode_shape, multiplicity, phi1, phi2, to_modes, to_points
from sgno.spectral.bases import AnyArray
from sgno.step import batch

_MAX_ITERATIONS = 16
# Stop when an iteration lowers the held-out error by less than this.
_WORTHWHILE = 0.95
# A correction that overshoots is tried again by halves and less.
_SHARES = (1.0, 0.5, 0.2)
# Growth below this per step is the rounding of a neutral mode, about ten units of float32.
_NEUTRAL = 1e-6
# Rounding errors gather in modes that nothing excites, which looks like growth: growth is believed only of
# modes above this power relative to the strongest, far above the rounding of float32 (1e-14).
_EXCITED = 1e-8
# Uncertainties before the first iteration has found any.
_UNKNOWN = 1e-2


class Weights(NamedTuple):
    """Rates `L` (of either sign), coupling `K` between channels (zero diagonal), contributions `P`, forcing
    `f` and gain `T`, as plain arrays."""

    L: np.ndarray
    K: np.ndarray
    P: np.ndarray
    f: np.ndarray
    T: np.ndarray


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Weights found from data, and how well they are known.

    `uncertainty` is the change of each weight that would by itself explain what is left unexplained;
    `may_grow` tells where rates may be positive; `error` is the held-out one-step error relative to the
    increment.
    """

    weights: Weights
    uncertainty: Weights
    may_grow: np.ndarray
    error: float = np.inf


class Trial(eqx.Module):
    """A step while it is fitted: its coefficients and its number of inner steps are data, so that all trials
    with one closure and number of stages run the same compiled programs."""

    scheme: Scheme
    inner_steps: Int[AnyArray, ""]

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return batch(self, u[None])[0]


@batch.register(Trial)
def _(trial: Trial, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    scheme = trial.scheme
    return to_points(scheme.advance(scheme.enter(u), trial.inner_steps), scheme.points)


def as_trial(step: SGNOX) -> Trial:
    """The step with its number of inner steps as data."""
    # Coefficients are few, and on the host there is nothing to compile.
    scheme = jax.tree.map(np.asarray, step).scheme(step.grid.points)
    return jax.device_put(Trial(scheme, np.asarray(step.config.inner_steps, np.int32)))


class Sensitivity(NamedTuple):
    """The next state, and the response of each of its modes to the weights of that mode."""

    v: Complex[Array, "batch channels *modes"]
    rate: Complex[Array, "batch channels *modes"]
    features: Complex[Array, "batch channels features *modes"]
    forcing: Complex[Array, "channels *modes"]
    gain: Complex[Array, "batch channels *modes"]


def sensitivity(
    scheme: Scheme, inner_steps: int | Array, v: Complex[Array, "batch channels *modes"]
) -> Sensitivity:
    """One step and, mode by mode, its response to the weights of that mode:

        d v+_c(k) / d(weight of channel c, mode k)

    for the factor exp((Lambda + m)/S), the weights K and P of the features, the forcing, and the gain.
    Responses by way of other modes and of later stages are left out: they are of higher order.
    """
    closure, T = scheme.closure(), scheme.w.T
    num_features = (0 if scheme.w.K is None else v.shape[1]) + len(scheme.terms.products)

    def response(x) -> Array:
        """Of one inner step to the weight of each feature in each channel, from its stages' features."""
        if not num_features:
            return jnp.zeros((), v.dtype)
        x1, *later = (jnp.stack(features, axis=1)[:, None] for features in x)
        found = scheme.first[:, None] * x1
        if scheme.stages == 2:
            found += (T * scheme.last)[:, None] * (later[0] - x1)
        elif scheme.stages == 4:
            found += (T * scheme.middle)[:, None] * (later[0] + later[1] - 2 * x1)
            found += (T * scheme.last)[:, None] * (later[2] - x1)
        return found

    def inner(_, at: Sensitivity) -> Sensitivity:
        v, x, correction = scheme.inner(at.v, closure)
        return Sensitivity(
            v,
            scheme.decay * at.rate + at.v,
            scheme.decay[:, None] * at.features + response(x),
            scheme.decay * at.forcing + scheme.first,
            scheme.decay * at.gain + correction,
        )

    features = jnp.zeros((*v.shape[:2], num_features, *v.shape[2:]), v.dtype)
    zero, no_forcing = jnp.zeros_like(v), jnp.zeros_like(scheme.first)
    return jax.lax.fori_loop(0, inner_steps, inner, Sensitivity(v, zero, features, no_forcing, zero))


@eqx.filter_jit
def _residual(trial: Trial, now: Array | np.ndarray, then: Array | np.ndarray) -> tuple[Array, Array]:
    """What one step leaves unexplained, `(batch, channels, modes)`, and the response of each mode to its
    rate, features, forcing and gain, as far as there are any, `(batch, channels, columns, modes)`."""
    scheme = trial.scheme
    s = sensitivity(scheme, trial.inner_steps, scheme.enter(jnp.asarray(now)))
    features = s.features
    if scheme.w.K is not None:
        # The response to a channel's coupling with itself is that of its rate: leave it out.
        C, J = scheme.w.P.shape[:2]
        others = np.concatenate([1 - np.eye(C), np.ones((C, J))], axis=1).astype(now.dtype)
        features = features * others.reshape(C, C + J, *(1,) * (now.ndim - 2))
    columns = [s.rate[:, :, None], features]
    if scheme.w.f is not None:
        columns.append(jnp.broadcast_to(s.forcing[:, None], columns[0].shape))
    if _has_gain(scheme):
        columns.append(s.gain[:, :, None])
    x, y = jnp.concatenate(columns, axis=2), to_modes(jnp.asarray(then), scheme.points) - s.v
    return y.reshape(*y.shape[:2], -1), x.reshape(*x.shape[:3], -1)


def _has_gain(scheme: Scheme) -> bool:
    """The gain is fitted with two stages only; with four the scheme is accurate enough without."""
    return scheme.stages == 2 and bool(scheme.terms.products)


def first_estimate(pairs: Pairs, grid: Grid, chosen: Selection) -> Estimate:
    """A first guess from the regression of the next state on the state and the products at both ends:

    v+ = g v + p_0 q(v) + p_1 q(v+) + c   =>   L = log g,  P = (p_0 + p_1) / phi_1(L),  f = c / phi_1(L).
    """
    C, J, shape = grid.channels, len(chosen.terms), mode_shape(grid.points)
    terms = Terms(chosen.terms)
    D = terms.filters(grid.points, chosen.cutoff).astype(np.complex64)
    gram = Gram()
    for now, then in pairs.blocks(C * (1 + C + 2 * J)):
        v, v_then = to_modes(now, grid.points), to_modes(then, grid.points)
        x = [v, *(host_products(w, D, terms, grid) for w in (v, v_then))]
        x = np.concatenate([*x, np.ones_like(v[:, :1])] if chosen.forcing else x, axis=1)
        x, y = (a.reshape(*a.shape[:2], -1) for a in (x, v_then))
        gram.add(np.repeat(x[:, None], C, axis=1), y)
    c = np.moveaxis(gram.solve(), 1, 2).reshape(C, -1, *shape)
    own = np.arange(C)
    g = c[own, own]
    power = gram.power()[own, :, own].reshape(g.shape)
    may_grow = power > _EXCITED * power.max(axis=tuple(range(1, power.ndim)), keepdims=True)
    L = without_growth(np.log(np.maximum(np.abs(g), 1e-9)) + 1j * np.angle(g), may_grow)
    phi = phi1(L)
    c = c / phi[:, None]
    c[own, own] = 0
    f = c[:, -1] if chosen.forcing else np.zeros_like(L)
    P = c[:, C : C + J] + c[:, C + J : C + 2 * J]
    weights = Weights(L, c[:, :C], P, f, np.ones_like(L))
    return Estimate(weights, Weights(*(np.full(w.shape, _UNKNOWN) for w in weights)), may_grow)


def refine(step: SGNOX, estimate: Estimate, pairs: SplitPairs) -> Estimate:
    """Gauss-Newton with the Jacobian's mode-diagonal part: what one step of the scheme leaves unexplained is
    regressed on the step's response to each weight of the mode, and the weights are corrected.

    Each iteration is one pass over the pairs and one small solve for each mode. The best iterate on the
    held-out pairs is returned.
    """
    columns = step.grid.channels * (step.grid.channels + len(step.terms.products) + 2)
    # Blocks of one size for both parts: the program is compiled once.
    size = min(block_size(step.grid.points, columns), len(pairs.held_out.now))
    best = dataclasses.replace(estimate, error=_error(step, estimate, pairs.held_out, size))
    for iteration in range(_MAX_ITERATIONS):
        tell("refining rates and products", iteration, _MAX_ITERATIONS)
        corrected = _correct(step, best, pairs.fit, size)
        best = dataclasses.replace(best, uncertainty=corrected.uncertainty)
        for share in _SHARES:
            between = (
                (1 - share) * a + share * b for a, b in zip(best.weights, corrected.weights, strict=True)
            )
            trial = dataclasses.replace(corrected, weights=Weights(*between))
            trial = dataclasses.replace(trial, error=_error(step, trial, pairs.held_out, size))
            if trial.error < best.error:
                break
        else:
            break
        gained = trial.error < _WORTHWHILE * best.error
        best = trial
        if not gained:
            break
    return best


def _responses(step: SGNOX, estimate: Estimate, pairs: Pairs, size: int):
    """`_residual` of the pairs, block by block; the last block is filled up with zeros and cut again."""
    trial = as_trial(install(step, estimate))
    for i in range(0, len(pairs.now), size):
        block = [u[i : i + size].astype(np.float32) for u in pairs]
        count = len(block[0])
        filled = [np.pad(u, ((0, size - count), *((0, 0),) * (u.ndim - 1))) for u in block]
        yield tuple(np.asarray(a)[:count] for a in _residual(trial, *filled))


def _error(step: SGNOX, estimate: Estimate, pairs: Pairs, size: int) -> float:
    """Mean square of the one-step error over that of the increment."""
    m = multiplicity(step.grid.points).reshape(-1)
    left = sum((m * np.abs(y) ** 2).sum(dtype=float) for y, _ in _responses(step, estimate, pairs, size))
    moved = ((pairs.then.astype(float) - pairs.now) ** 2).sum() / np.prod(step.grid.points)
    error = float(left / max(moved, 1e-300))
    return error if np.isfinite(error) else np.inf


def _correct(step: SGNOX, estimate: Estimate, pairs: Pairs, size: int) -> Estimate:
    """One Gauss-Newton correction, and the uncertainties that go with its residual.

    The coordinates are those in which one inner step of length h is nearly linear,

        e = exp(h L),   p = h phi_1(h Lambda) P,   T phi_2 / phi_1,

    so that fast modes, whose phases turn by radians within a step, converge as quickly as slow ones.
    """
    gram = Gram()
    for y, x in _responses(step, estimate, pairs, size):
        gram.add(x, y)
    delta = gram.solve()
    left = np.sqrt(gram.error(delta) + 1e-300)
    unit = left[..., None] / np.sqrt(gram.power() + gram.noise() + 1e-300)
    L, K, P, f, T = estimate.weights
    C, J = P.shape[:2]
    delta, unit = (np.moveaxis(a, 1, 2).reshape(C, -1, *L.shape[1:]) for a in (delta, unit))

    coupled = C if step.coupling is not None else 0
    at_P, at_f = 1 + coupled, 1 + coupled + J
    S = step.config.inner_steps
    e = np.exp(L / S)
    e_new = np.where(np.abs(e + delta[:, 0]) > 1e-9, e + delta[:, 0], 1e-9)
    L_new = L + S * np.log(e_new / e)
    if step.config.generator == "real":
        L_new = np.real(L_new).astype(complex)
    L_new = without_growth(L_new, estimate.may_grow)
    # Factors that keep phi_1 P and T phi_2 / phi_1 when the rate changes.
    ratio = phi1(L / S) / phi1(L_new / S)
    gain_ratio = phi2(L / S) / phi2(L_new / S) / ratio
    typical = np.median(np.abs(P)) if J else 0.0
    uncertainty = estimate.uncertainty._replace(
        L=np.clip(S * unit[:, 0] / np.maximum(np.abs(e), 1e-3), 1e-9, 0.1),
        P=np.clip(unit[:, at_P:at_f], 1e-7 * typical, 0.1 * typical),
    )
    weights = Weights(L_new, K, (P + delta[:, at_P:at_f]) * ratio[:, None], f, T)
    if coupled:
        weights = weights._replace(K=(K + delta[:, 1:at_P]) * ratio[:, None])
    if step.forcing is not None:
        weights = weights._replace(f=(f + delta[:, at_f]) * ratio)
        uncertainty = uncertainty._replace(f=np.maximum(unit[:, at_f], 1e-12))
    if step.gain is not None and step.config.stages == 2:
        weights = weights._replace(T=(T + delta[:, -1]) * gain_ratio)
        uncertainty = uncertainty._replace(T=np.clip(unit[:, -1], 1e-6, 0.1))
    return dataclasses.replace(estimate, weights=weights, uncertainty=uncertainty)


def without_growth(L: np.ndarray, may_grow: np.ndarray) -> np.ndarray:
    """Rates without a positive real part where it is not believed."""
    growth, turn = np.real(L), np.imag(L)
    return np.where((growth > _NEUTRAL) & may_grow, L, np.minimum(growth, 0) + 1j * turn)


def install(step: SGNOX, estimate: Estimate) -> SGNOX:
    """The step with the estimated weights; factors keep their symbols."""
    w, unit = estimate.weights, estimate.uncertainty
    relative = float(np.clip(np.sqrt(estimate.error) if np.isfinite(estimate.error) else 1e-2, 1e-7, 0.1))
    filters = step.filters
    if filters is not None:
        D = step.terms.filters(filters.points, filters.cutoff)
        size = np.abs(D)
        typical = np.median(size[size > 0])
        filters = Filters(D, relative * np.maximum(size, 0.1 * typical), filters.points, filters.cutoff)
    return eqx.tree_at(
        lambda s: (s.P, s.forcing, s.gain, s.filters),
        install_linear(step, estimate),
        (
            Multiplier(w.P, unit.P),
            None if step.forcing is None else Multiplier(w.f, unit.f),
            None if step.gain is None else Multiplier(w.T, unit.T),
            filters,
        ),
        is_leaf=lambda x: x is None,
    )


def install_linear(step: SGNOX, estimate: Estimate) -> SGNOX:
    """The step with the estimated decay, dispersion, growth and coupling."""
    w, unit, real = estimate.weights, estimate.uncertainty, step.config.generator == "real"
    L = np.real(w.L).astype(complex) if real else w.L
    K_unit = np.broadcast_to(unit.L[:, None], w.K.shape)
    return eqx.tree_at(
        lambda s: (s.generator, s.growth, s.coupling),
        step,
        (
            Rates(L, unit.L, real=real),
            Growth(np.where(np.real(L) > _NEUTRAL, L, 0), unit.L),
            None if step.coupling is None else Coupling(w.K, K_unit, real=real),
        ),
        is_leaf=lambda x: x is None,
    )
