"""The start from data: everything that least squares can find before a gradient is taken."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.engine import begin, run
from sgno.errors import InputError
from sgno.identify.fit import first_fit, install, linear_parts, refine
from sgno.identify.screening import Pairs
from sgno.identify.selection import Selection, select
from sgno.identify.smooth import fit_symbols
from sgno.identify.warm_start import warm_start
from sgno.sgno_x.config import SGNOXConfig
from sgno.sgno_x.step import SGNOX
from sgno.sgno_x.trapping import TrappingSet
from sgno.spectral import to_modes

# Stages and inner steps from cheap to dear; the first that is nearly as good as the best is taken.
_SCHEMES = ((2, 1), (4, 1), (4, 2), (4, 4))
_NEARLY = 1.5
# A rollout this close is at the rounding errors of its reference: a dearer scheme cannot help.
_PERFECT = 2e-5
# A closure whose rollouts are as far off as this is held against none.
_POOR = 0.1
_HELD_OUT = 0.1
_FITTED_POINTS = 1_500_000
_MIN_PAIRS, _MAX_PAIRS = 128, 2500
_BLOCK_POINTS = 2**20


class Candidate(NamedTuple):
    """A fitted step and the held-out rollout error that it is judged by."""

    step: SGNOX
    error: float


def start_from_data(step: SGNOX, trajectories: np.ndarray, *, key: PRNGKeyArray) -> SGNOX:
    """The step to train from.

    1. A trapping set around the training data.
    2. The products of the closure, by regression (`select`).
    3. For each scheme: rates, contributions and forcing by regression, then corrected mode by mode until
       one step of the scheme reproduces the pairs (`refine`).
    4. The cheapest scheme whose rollouts of held-out trajectories are nearly as good as the best.
    5. If all of them are poor, the same by way of symbols (`fit_symbols`).

    **Raises:** `InputError` if there are fewer than two times or a value is not finite.
    """
    if trajectories.shape[1] < 2 or not np.isfinite(trajectories).all():
        raise InputError(
            f"The trajectories of shape {trajectories.shape} need at least two times and finite values. "
            "Leave out the samples that diverged."
        )
    step = _trap(step, trajectories)
    if step.config.start == "random":
        return step
    pairs = split(trajectories)
    if step.config.start == "linear":
        fit = first_fit(pairs, step.grid, Selection((), tuple(step.config.cutoff or ()), False, 0.0))
        return linear_parts(step, fit)
    asked = step.asked
    chosen = _choose(step, pairs)
    candidates: list[Candidate] = []
    for stages, inner_steps in _schemes(asked, bool(chosen.terms)):
        candidates.append(_candidate(step, chosen, stages, inner_steps, pairs, trajectories, key=key))
        if candidates[-1].error < _PERFECT:
            break
    best = min(c.error for c in candidates)
    if best > _POOR and asked.most_terms(step.grid) and asked.carry == "state":
        candidates += _by_symbols(step, pairs, trajectories, key=key)
        best = min(c.error for c in candidates)
    if best > _POOR and chosen.terms:
        linear = chosen._replace(terms=())
        candidates.insert(0, _candidate(step, linear, 1, 1, pairs, trajectories, key=key))
        best = min(best, candidates[0].error)
    return next((c.step for c in candidates if c.error <= _NEARLY * best), candidates[-1].step)


def _choose(step: SGNOX, pairs: Pairs) -> Selection:
    """The products, their cutoff and whether there is a forcing, as asked for or as the pairs say."""
    asked = step.asked
    chosen = select(
        pairs,
        step.grid,
        degree=asked.degree,
        most=asked.most_terms(step.grid) if asked.terms is None else 0,
        forcing=asked.forcing,
    )
    if asked.terms is not None:
        chosen = chosen._replace(terms=tuple(tuple(term) for term in asked.terms))
    if asked.cutoff is not None:
        chosen = chosen._replace(cutoff=tuple(asked.cutoff))
    return chosen


def _by_symbols(step: SGNOX, pairs: Pairs, trajectories: np.ndarray, *, key: PRNGKeyArray) -> list[Candidate]:
    """Another way, for states that change much from frame to frame: products chosen where they change least,
    and weights that are symbols first (`fit_symbols`); by the dearest scheme, without and with a forcing."""
    slow = pairs.slower()
    chosen = _choose(step, slow)
    if not chosen.terms:
        return []
    stages, inner_steps = _schemes(step.asked, True)[-1]
    forcings = (False, True) if step.asked.forcing is None else (step.asked.forcing,)
    return [
        _candidate(
            step,
            chosen._replace(forcing=forcing),
            stages,
            inner_steps,
            pairs,
            trajectories,
            key=key,
            slow=slow,
        )
        for forcing in forcings
    ]


def _candidate(
    step: SGNOX,
    chosen: Selection,
    stages: int,
    inner_steps: int,
    pairs: Pairs,
    trajectories: np.ndarray,
    *,
    key: PRNGKeyArray,
    slow: Pairs | None = None,
) -> Candidate:
    """The step with this closure and scheme, fitted; given slow pairs, from them and by way of symbols."""
    config = dataclasses.replace(
        step.config,
        stages=stages,
        inner_steps=inner_steps,
        terms=chosen.terms,
        cutoff=chosen.cutoff,
        forcing=chosen.forcing,
    )
    trial = _trap(SGNOX(config, step.grid, asked=step.asked, key=key), trajectories)
    fit = first_fit(slow or pairs, step.grid, chosen)
    if slow is not None:
        fit = fit_symbols(trial, fit, pairs)
    # Latent copies do not enter linearly: they start from the rates of the state and are left to training.
    fit = fit if config.carry == "latent" else refine(trial, fit, pairs)
    trial = install(trial, fit)
    return Candidate(trial, rollout_error(trial, _held_out(trajectories)))


def split(trajectories: np.ndarray) -> Pairs:
    """Pairs of neighbours, drawn evenly: some to fit, some of held-out trajectories to judge by."""
    samples, times = trajectories.shape[:2]
    held = _held_out(trajectories)
    if samples > 1:
        fitting = trajectories[: samples - len(held)]
    else:
        fitting = trajectories[:, : times - held.shape[1] + 1]
    points = int(np.prod(trajectories.shape[3:]))
    most = int(np.clip(_FITTED_POINTS // points, _MIN_PAIRS, _MAX_PAIRS))
    now, then = _draw(fitting, most)
    held_now, held_then = _draw(held, max(16, most // 5))
    return Pairs(np.concatenate([now, held_now]), np.concatenate([then, held_then]), len(now))


def _held_out(trajectories: np.ndarray) -> np.ndarray:
    """The last trajectories; of a single one, its last part, from a state that is fitted too."""
    samples, times = trajectories.shape[:2]
    if samples > 1:
        return trajectories[samples - max(1, round(_HELD_OUT * samples)) :]
    return trajectories[:, min(times - 2, round((1 - _HELD_OUT) * (times - 1))) :]


def rollout_error(step: SGNOX, held: np.ndarray) -> float:
    """The geometric mean over time of the mean nRMSE over held-out trajectories; infinite if not finite."""
    truth = np.moveaxis(held, 0, 1)
    count = truth.shape[0] - 1
    u0 = jnp.asarray(truth[0], jnp.float32)
    rolled = np.asarray(run(step, begin(u0), (), count, room=count, states=True)[2][0])
    axes = tuple(range(2, truth.ndim))
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt(((rolled - truth[1:]) ** 2).mean(axes))
    error = error / np.maximum(np.sqrt((truth[1:].astype(float) ** 2).mean(axes)), 1e-30)
    if not np.isfinite(error).all():
        return np.inf
    return float(np.exp(np.log(np.maximum(error.mean(1), 1e-12)).mean()))


def _schemes(asked: SGNOXConfig, nonlinear: bool) -> list[tuple[int, int]]:
    """The schemes that the settings leave open."""
    if asked.carry == "latent":
        return [(asked.stages or 2, asked.inner_steps or 1)]
    if not asked.second_stage:
        return [(1, asked.inner_steps or s) for s in ((1,) if asked.inner_steps else (1, 2, 4))]
    if not nonlinear:
        return [(asked.stages or 1, asked.inner_steps or 1)]
    open_ = [(asked.stages or stages, asked.inner_steps or inner_steps) for stages, inner_steps in _SCHEMES]
    return list(dict.fromkeys(open_))


def _trap(step: SGNOX, trajectories: np.ndarray) -> SGNOX:
    if step.trapping is None:
        return step
    envelope = 0.0
    flat = trajectories.reshape(-1, *trajectories.shape[2:])
    block = max(1, _BLOCK_POINTS // int(np.prod(flat.shape[1:])))
    for i in range(0, len(flat), block):
        v = np.abs(to_modes(flat[i : i + block].astype(np.float32), step.grid.points))
        envelope = np.maximum(envelope, v.max(axis=0))
    trapping = TrappingSet(np.asarray(envelope), step.config.margin, step.grid.points)
    return eqx.tree_at(lambda s: s.trapping, step, trapping)


def _draw(trajectories: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """So many pairs at most, drawn once and for all evenly at random."""
    samples, times = trajectories.shape[:2]
    count = samples * (times - 1)
    index = np.random.default_rng(0).permutation(count)[:most]
    i, t = np.divmod(index, times - 1)
    return trajectories[i, t], trajectories[i, t + 1]


@warm_start.register(SGNOX)
def _(
    step: SGNOX,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> SGNOX:
    """The step to train from: its closure, scheme, weights and trapping set from the trajectories.

    The structure depends on the trajectories alone, never on `key`.
    """
    step.check(trajectories.shape[2:])
    return start_from_data(step, np.asarray(trajectories), key=key)
