"""Reading an SGNO-X: what it learned, as plain numbers and sentences."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgno.identify.estimate import sensitivity
from sgno.sgno_x import SGNOX, Multipliers
from sgno.sgno_x.symbols import in_words
from sgno.spectral import to_points, wavenumbers

_STRONGEST_MODES = 6
# Part of the variance of an output below which a term or a mode is not worth a sentence.
_VISIBLE = 1e-6
# Below this power relative to the strongest, a mode of float32 states is mostly rounding.
_EXCITED = 1e-10


@dataclasses.dataclass(frozen=True)
class Curve:
    """Rates of one channel along one axis against its wavenumber, per step of the data.

    `damping` and `growth` are in nepers, `dispersion` in radians between -pi and pi, all that
    one step can tell. `known` tells the modes that the training data excite.
    """

    channel: int
    axis: int
    wavenumber: list[int]
    damping: list[float]
    dispersion: list[float]
    growth: list[float]
    known: list[bool]


@dataclasses.dataclass(frozen=True)
class Term:
    """A product of the closure: its factors in words, the differential operator that acts on it in each
    channel (as far as one fits), and the root mean square of its contribution to one step."""

    channel: int
    product: str
    operator: str
    strength: float
    share: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Everything `explain` found; `text` says it in sentences."""

    channels: int
    points: tuple[int, ...]
    inner_steps: int
    stages: int
    cutoff: tuple[int, ...]
    curves: list[Curve]
    terms: list[Term]
    forcing: np.ndarray | None
    forcing_modes: list[dict[str, Any]]
    rms_bound: list[float] | None
    sup_bound: list[float] | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, the forcing field as nested lists."""
        content = dataclasses.asdict(self)
        content["forcing"] = None if self.forcing is None else self.forcing.tolist()
        return content


def explain(step: SGNOX, states: np.ndarray) -> Explanation:
    """What a step learned.

    **Arguments:**

    - `step`: the trained step.
    - `states`: some states of the data, `(states, channels, *points)`, by which terms are weighed.

    **Returns:** an `Explanation`.
    """
    grid, config = step.grid, step.config
    scheme = step.scheme(grid.points)
    w = jax.tree.map(np.asarray, scheme.w)
    v = scheme.enter(jnp.asarray(states, jnp.float32))
    power = np.mean(np.abs(np.asarray(v)) ** 2, axis=0)
    axes = range(grid.num_spatial_dims)
    curves = [_curve(w, grid.points, power, c, axis) for c in range(grid.channels) for axis in axes]
    response = np.asarray(sensitivity(scheme, config.inner_steps, v).features)
    terms = _terms(step, w, response[:, :, response.shape[2] - len(step.terms.products) :])
    forcing = None if w.f is None else to_points(w.f, grid.points)
    modes = [] if w.f is None else _forcing_modes(w.f, grid.points)
    bounds = None if step.trapping is None else (step.trapping.rms_bound(), step.trapping.sup_bound())
    found = Explanation(
        channels=grid.channels,
        points=grid.points,
        inner_steps=config.inner_steps,
        stages=config.stages,
        cutoff=config.cutoff,
        curves=curves,
        terms=terms,
        forcing=forcing,
        forcing_modes=modes,
        rms_bound=None if bounds is None else [float(b) for b in bounds[0]],
        sup_bound=None if bounds is None else [float(b) for b in bounds[1]],
        text="",
    )
    return dataclasses.replace(found, text=_sentences(found))


def _curve(w: Multipliers, points: tuple[int, ...], power: np.ndarray, channel: int, axis: int) -> Curve:
    """The rates along one axis, the other wavenumbers zero."""
    last = axis == len(points) - 1
    count = points[axis] // 2 + (1 if last else 0)
    index: list[Any] = [0] * len(points)
    index[axis] = slice(0, count)
    at = (channel, *index)
    Lambda, m = np.asarray(w.Lambda[at]), np.asarray(w.m[at])
    known = power[at] > _EXCITED * power[channel].max()
    return Curve(
        channel,
        axis,
        list(range(count)),
        (-np.real(Lambda)).tolist(),
        (np.pi - (np.pi - np.imag(Lambda)) % (2 * np.pi)).tolist(),
        m.tolist(),
        known.tolist(),
    )


def _terms(step: SGNOX, w: Multipliers, response: np.ndarray) -> list[Term]:
    """Every product in every channel, strongest first, by what it adds to one step of the given states.

    `response` is that of the step to the contribution of each product, `(states, channels, terms, *modes)`.
    """
    P = np.asarray(w.P)
    contribution = P * response
    axes = (0, *range(3, contribution.ndim))
    strength = np.sqrt((np.abs(contribution) ** 2).sum(axes) / len(contribution))
    total = np.sqrt((strength**2).sum(axis=1, keepdims=True)) + 1e-300
    q_power = np.mean(np.abs(response) ** 2, axis=0)
    found = []
    for c in range(step.grid.channels):
        for j, term in enumerate(step.terms.products):
            factors = [in_words(step.terms.factors[a], step.grid.channels) for a in term]
            operator = _operator(P[c, j], q_power[c, j] * np.abs(P[c, j]) ** 2, step.grid.points)
            share = float(strength[c, j] / total[c, 0])
            found.append(Term(c, " * ".join(factors), operator, float(strength[c, j]), share))
    return sorted(found, key=lambda t: -t.strength)


def _operator(P: np.ndarray, weight: np.ndarray, points: tuple[int, ...]) -> str:
    """The symbol `a + sum_i b_i (i k_i)` nearest to a multiplier, weighted by its output's power."""
    k = wavenumbers(points).reshape(len(points), -1)
    basis = np.stack([np.ones(k.shape[1]), *(1j * k)], axis=1)
    root = np.sqrt(weight.reshape(-1) / max(weight.max(), 1e-300))
    rows = np.concatenate([np.real(basis), np.imag(basis)]) * np.concatenate([root, root])[:, None]
    target = np.concatenate([np.real(P).reshape(-1), np.imag(P).reshape(-1)]) * np.concatenate([root, root])
    coefficients, *_ = np.linalg.lstsq(rows, target, rcond=None)
    left = np.linalg.norm(rows @ coefficients - target) / max(np.linalg.norm(target), 1e-300)
    names = ["", *(f" d/d{'xyz'[i]}" for i in range(len(points)))]
    size = np.abs(coefficients) * np.array(
        [1.0, *np.sqrt((root[:, None] ** 2 * k.T**2).sum(0) / (root**2).sum())]
    )
    parts = [
        f"{value:+.4g}{name}"
        for value, name, s in zip(coefficients, names, size, strict=True)
        if s > 0.01 * max(size.max(), 1e-300)
    ]
    text = " ".join(parts) or "0"
    return text if left < 0.05 else f"a multiplier near {text} ({100 * min(left, 1.0):.0f} % off)"


def _forcing_modes(f: np.ndarray, points: tuple[int, ...]) -> list[dict[str, Any]]:
    """The strongest modes of the forcing."""
    k = wavenumbers(points)
    found = []
    for c in range(f.shape[0]):
        order = np.argsort(-np.abs(f[c]).reshape(-1))[:_STRONGEST_MODES]
        for flat in order:
            at = np.unravel_index(flat, f.shape[1:])
            amplitude = float(np.abs(f[c][at]))
            if amplitude**2 > _VISIBLE * float((np.abs(f[c]) ** 2).sum()):
                mode = [int(k_i[at]) for k_i in k]
                found.append({"channel": c, "mode": mode, "amplitude": amplitude})
    return found


def _sentences(found: Explanation) -> str:
    lines = [
        f"A step on {'x'.join(map(str, found.points))} points with {found.channels} channel(s): "
        f"{found.inner_steps} inner step(s) of {found.stages} stage(s); "
        f"wavenumbers up to {', '.join(map(str, found.cutoff))} enter products."
    ]
    for curve in found.curves:
        axis, known = "xyz"[curve.axis], np.array(curve.known)
        if not known.any():
            continue
        damping, dispersion, growth = (
            np.array(values)[known] for values in (curve.damping, curve.dispersion, curve.growth)
        )
        k = np.array(curve.wavenumber)[known]
        text = f"Channel {curve.channel}, along {axis}, modes {k.min()} to {k.max()}: "
        text += f"damping up to {damping.max():.3g} and phase up to {np.abs(dispersion).max():.3g} rad a step"
        if growth.max() > 1e-6:
            unstable = k[growth > 1e-6]
            text += f"; modes {unstable.min()} to {unstable.max()} grow, by at most {growth.max():.3g} a step"
        lines.append(text + ".")
    if not found.terms:
        lines.append("There are no products: the step is linear.")
    for term in found.terms:
        if term.share**2 > _VISIBLE:
            lines.append(
                f"Channel {term.channel} gains [{term.operator}] applied to {term.product}: "
                f"{term.strength:.3g} a step (root mean square)."
            )
    if found.forcing is None:
        lines.append("There is no forcing: the step commutes with translations.")
    else:
        modes = "; ".join(
            f"mode {m['mode']} of channel {m['channel']}: {m['amplitude']:.3g}" for m in found.forcing_modes
        )
        lines.append(f"A static forcing, strongest in {modes}.")
    if found.rms_bound is None:
        lines.append("There is no trapping set: nothing bounds a rollout.")
    else:
        bound = ", ".join(f"{b:.3g}" for b in found.rms_bound)
        lines.append(f"No rollout ever exceeds a root mean square of {bound}.")
    return "\n".join(lines)
