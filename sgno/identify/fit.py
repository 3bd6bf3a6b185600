"""Rates, contributions, forcing and gain by least squares, mode by mode, through the scheme itself."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from sgno.grid import Grid
from sgno.identify.regression import Gram
from sgno.identify.screening import Pairs, blocks, host_products, modes
from sgno.identify.selection import Selection
from sgno.sgno_x.closure import Filters, Terms
from sgno.sgno_x.generator import Coupling, Generator, Growth
from sgno.sgno_x.multiplier import Multiplier
from sgno.sgno_x.prepared import Sensitivity
from sgno.sgno_x.step import SGNOX
from sgno.spectral import mode_shape, phi1, phi2, to_modes
from sgno.step import batch

_MAX_ITERATIONS = 16
# Stop when an iteration lowers the held-out error by less than this.
_WORTHWHILE = 0.95
# A correction that overshoots is tried again by halves and less.
_SHARES = (1.0, 0.5, 0.2)
_SLOWEST = 1e-9
# Growth below this per step is the rounding of a neutral mode.
_NEUTRAL = 1e-6
# Rounding errors gather in modes that nothing excites, which looks like growth: growth is believed only of
# modes above this power, relative to the strongest.
_EXCITED = 1e-8


@dataclasses.dataclass(frozen=True)
class Fit:
    """Weights as plain arrays: rates `L` (of either sign), coupling `K` between channels (zero diagonal),
    contributions `P`, forcing `f`, gain `T`; where rates may be positive; what the data leave open of each,
    `unit_*`; and the held-out one-step error relative to the increment."""

    L: np.ndarray
    K: np.ndarray
    P: np.ndarray
    f: np.ndarray
    T: np.ndarray
    may_grow: np.ndarray
    unit_L: np.ndarray
    unit_P: np.ndarray
    unit_f: np.ndarray
    unit_T: np.ndarray
    error: float


def first_fit(pairs: Pairs, grid: Grid, chosen: Selection) -> Fit:
    """A first guess from the regression of the next state on the state and the products at both ends:

    v+ = g v + p_0 q(v) + p_1 q(v+) + c   =>   L = log g,  P = (p_0 + p_1) / phi_1(L),  f = c / phi_1(L).
    """
    C, J = grid.channels, len(chosen.terms)
    terms = Terms(chosen.terms)
    D = terms.start(grid.points, chosen.cutoff).astype(np.complex64) if J else None
    gram = Gram()
    for now, then in blocks(*pairs.part(held=False), C * (1 + C + 2 * J)):
        v, v_then = modes(now), modes(then)
        x = [v] if D is None else [v, *(host_products(w, D, terms, grid.points) for w in (v, v_then))]
        x = np.concatenate([*x, np.ones_like(v[:, :1])] if chosen.forcing else x, axis=1)
        x, y = (a.reshape(*a.shape[:2], -1) for a in (x, v_then))
        gram.add(np.repeat(x[:, None], C, axis=1), y)
    c = np.moveaxis(gram.solve(), 1, 2).reshape(C, -1, *mode_shape(grid.points))
    g = np.stack([c[i, i] for i in range(C)])
    L = np.log(np.maximum(np.abs(g), 1e-9)) + 1j * np.angle(g)
    power = np.stack([gram.power()[i, :, i] for i in range(C)]).reshape(L.shape)
    may_grow = power > _EXCITED * power.max(axis=tuple(range(1, power.ndim)), keepdims=True)
    L = without_growth(L, may_grow)
    phi = phi1(L)
    K = c[:, :C] / phi[:, None]
    for i in range(C):
        K[i, i] = 0
    P = (c[:, C : C + J] + c[:, C + J : C + 2 * J]) / phi[:, None]
    f = c[:, -1] / phi if chosen.forcing else np.zeros_like(L)
    small = np.full(L.shape, 1e-2)
    return Fit(L, K, P, f, np.ones_like(L), may_grow, small, np.full(P.shape, 1e-2), small, small, np.inf)


def refine(step: SGNOX, fit: Fit, pairs: Pairs, *, iterations: int = _MAX_ITERATIONS) -> Fit:
    """Gauss-Newton with the Jacobian's mode-diagonal part: what one step of the scheme leaves unexplained is
    regressed on the step's response to each weight of the mode, and the weights are corrected.

    Each iteration is one pass over the pairs and one small solve for each mode. The best iterate on the
    held-out pairs is returned.
    """
    held = pairs.part(held=True)
    best = dataclasses.replace(fit, error=_error(install(step, fit), *held))
    for _ in range(iterations):
        corrected = _correct(step, install(step, best), best, pairs)
        best = _with_units(best, corrected)
        for share in _SHARES:
            trial = corrected if share == 1 else _between(best, corrected, share)
            trial = dataclasses.replace(trial, error=_error(install(step, trial), *held))
            if trial.error < best.error:
                break
        else:
            break
        gained = trial.error < _WORTHWHILE * best.error
        best = trial
        if not gained:
            break
    return best


def fit_of(step: SGNOX) -> Fit:
    """The weights of a step as a fit, to go on from."""
    w = step.weights()
    L = np.asarray(w.Lambda, complex) + np.asarray(w.m, float)
    K = np.zeros((L.shape[0], *L.shape), complex) if w.K is None else np.asarray(w.K, complex)
    f = np.zeros_like(L) if w.f is None else np.asarray(w.f, complex)
    P, T = np.asarray(w.P, complex), np.asarray(w.T, complex)
    may_grow = np.asarray(w.m) > _NEUTRAL
    unit_L, unit_P = np.asarray(step.generator.w.scale(), float), np.asarray(step.P.scale(), float)
    unit_f = unit_L if step.forcing is None else np.asarray(step.forcing.scale(), float)
    unit_T = unit_L if step.gain is None else np.asarray(step.gain.scale(), float)
    return Fit(L, K, P, f, T, may_grow, unit_L, unit_P, unit_f, unit_T, np.inf)


def install(step: SGNOX, fit: Fit) -> SGNOX:
    """The step with the fitted weights; factors keep their symbols."""
    step = linear_parts(step, fit)
    relative = float(np.clip(np.sqrt(fit.error) if np.isfinite(fit.error) else 1e-2, 1e-7, 0.1))
    forcing = None if step.forcing is None else Multiplier(fit.f, fit.unit_f)
    gain = None if step.gain is None else Multiplier(fit.T, fit.unit_T)
    filters = step.filters
    if filters is not None:
        D = np.asarray(filters())
        size = np.abs(D)
        typical = np.median(size[size > 0])
        filters = Filters(D, relative * np.maximum(size, 0.1 * typical), filters.points, filters.cutoff)
    return eqx.tree_at(
        lambda s: (s.P, s.forcing, s.gain, s.filters),
        step,
        (Multiplier(fit.P, fit.unit_P), forcing, gain, filters),
        is_leaf=lambda x: x is None,
    )


def linear_parts(step: SGNOX, fit: Fit) -> SGNOX:
    """The step with the fitted rates: decay and dispersion, growth, coupling."""
    real = step.config.generator == "real"
    L = np.real(fit.L).astype(complex) if real else fit.L
    rates, unit = L, fit.unit_L
    if step.latent is not None:
        rates, unit = step.latent.copies(L), step.latent.copies(fit.unit_L)
    step = eqx.tree_at(lambda s: s.generator, step, Generator(rates, unit, real=real))
    if step.growth is not None:
        growth = Growth(np.where(np.real(L) > _NEUTRAL, L, 0), fit.unit_L)
        step = eqx.tree_at(lambda s: s.growth, step, growth)
    if step.coupling is not None:
        unit = np.broadcast_to(fit.unit_L[:, None], fit.K.shape)
        step = eqx.tree_at(lambda s: s.coupling, step, Coupling(fit.K, unit, real=real))
    return step


def _correct(step: SGNOX, trial: SGNOX, fit: Fit, pairs: Pairs) -> Fit:
    """One Gauss-Newton correction, and the units that go with its residual.

    The coordinates are those in which one inner step of length h is nearly linear,

        e = exp(h L),   p = h phi_1(h Lambda) P,   T phi_2 / phi_1,

    so that fast modes, whose phases turn by radians within a step, converge as quickly as slow ones.
    """
    grid = step.grid
    C, J, shape = grid.channels, len(step.terms.products), mode_shape(grid.points)
    with_forcing, with_gain = step.forcing is not None, step.gain is not None and step.config.stages == 2
    coupled = step.coupling is not None
    gram = Gram()
    for now, then in blocks(*pairs.part(held=False), C * (C + J + 2)):
        s, y = _sensitivity(trial, jnp.asarray(now), jnp.asarray(then))
        x = [np.asarray(s.carry)[:, :, None], np.asarray(s.features)]
        if coupled:
            # The response to a channel's coupling with itself is that of its rate: leave it out.
            others = np.concatenate([1 - np.eye(C), np.ones((C, J))], axis=1)
            x[1] = x[1] * others.reshape(C, C + J, *(1,) * len(shape))
        if with_forcing:
            x.append(np.broadcast_to(np.asarray(s.forcing)[:, None], (len(now), C, 1, *shape)))
        if with_gain:
            x.append(np.asarray(s.correction)[:, :, None])
        x = np.concatenate(x, axis=2)
        gram.add(x.reshape(*x.shape[:3], -1), np.asarray(y).reshape(*y.shape[:2], -1))
    delta = gram.solve()
    left = np.sqrt(gram.error(delta) + 1e-300)
    unit = left[..., None] / np.sqrt(gram.power() + gram.noise() + 1e-300)
    delta, unit = (np.moveaxis(a, 1, 2).reshape(C, -1, *shape) for a in (delta, unit))

    own = 1 + (C if coupled else 0)
    rate, K_delta, P_delta = delta[:, 0], delta[:, 1:own], delta[:, own : own + J]
    S = step.config.inner_steps or 1
    e = np.exp(fit.L / S)
    e_new = np.where(np.abs(e + rate) > 1e-9, e + rate, 1e-9)
    L = fit.L + S * np.log(e_new / e)
    if step.config.generator == "real":
        L = np.real(L).astype(complex)
    L = without_growth(L, fit.may_grow)
    ratio, gain_ratio = _coefficient_ratios(fit.L / S, L / S)
    typical = np.median(np.abs(fit.P)) if J else 0.0
    return dataclasses.replace(
        fit,
        L=L,
        K=(fit.K + K_delta) * ratio[:, None] if coupled else fit.K,
        P=(fit.P + P_delta) * ratio[:, None],
        f=(fit.f + delta[:, own + J]) * ratio if with_forcing else fit.f,
        T=(fit.T + delta[:, -1]) * gain_ratio if with_gain else fit.T,
        unit_L=np.clip(S * unit[:, 0] / np.maximum(np.abs(e), 1e-3), _SLOWEST, 0.1),
        unit_P=np.clip(unit[:, own : own + J], 1e-7 * typical, 0.1 * typical),
        unit_f=np.clip(unit[:, own + J] if with_forcing else fit.unit_f, 1e-12, None),
        unit_T=np.clip(unit[:, -1] if with_gain else fit.unit_T, 1e-6, 0.1),
    )


def _with_units(fit: Fit, other: Fit) -> Fit:
    """The fit, with what is left open as the other one found it."""
    return dataclasses.replace(fit, **{f"unit_{name}": getattr(other, f"unit_{name}") for name in "LPfT"})


def _between(old: Fit, new: Fit, share: float) -> Fit:
    """Part of the way from one fit to the next, with the units of the next."""
    moved = {name: (1 - share) * getattr(old, name) + share * getattr(new, name) for name in "LKPfT"}
    return dataclasses.replace(new, **moved)


def _coefficient_ratios(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors that keep `phi_1 P` and `T phi_2 / phi_1` when the rate changes."""
    ratio = phi1(old) / phi1(new)
    return ratio, (phi2(old) / phi2(new)) / ratio


def without_growth(L: np.ndarray, may_grow: np.ndarray) -> np.ndarray:
    growth, turn = np.real(L), np.imag(L)
    return np.where((growth > _NEUTRAL) & may_grow, L, np.minimum(growth, 0) + 1j * turn)


@eqx.filter_jit
def _sensitivity(trial: SGNOX, now, then) -> tuple[Sensitivity, jnp.ndarray]:
    """The step's responses and what it leaves unexplained."""
    ready = trial.on_grid(trial.grid.points)
    s = ready.sensitivity(ready.enter(now))
    return s, to_modes(then, trial.grid.points) - s.v


@eqx.filter_jit
def _left(trial: SGNOX, now, then) -> jnp.ndarray:
    return jnp.stack([jnp.sum((batch(trial, now) - then) ** 2), jnp.sum((then - now) ** 2)])


def _error(trial: SGNOX, now: np.ndarray, then: np.ndarray) -> float:
    """Mean square of the one-step error over that of the increment."""
    total = np.zeros(2)
    for a, b in blocks(now, then, 1):
        total += np.asarray(_left(trial, jnp.asarray(a), jnp.asarray(b)), dtype=float)
    error = float(total[0] / max(total[1], 1e-300))
    return error if np.isfinite(error) else np.inf
