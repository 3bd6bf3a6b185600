"""The start from data: everything that least squares can find before a gradient is taken."""

import dataclasses
import logging
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.engine import ROOM, frames
from sgno.errors import InputError
from sgno.identify.estimate import as_trial, first_estimate, install, install_linear, refine
from sgno.identify.linear import warm_start
from sgno.identify.pairs import SplitPairs, held_out, split
from sgno.identify.selection import Selection, select
from sgno.identify.symbol_fit import fit_symbols
from sgno.progress import tell
from sgno.sgno_x.model import SGNOX
from sgno.sgno_x.trapping import TrappingSet
from sgno.spectral import to_modes

# Stages and inner steps, the cheapest first; the first that is nearly as good as the best is taken.
_SCHEMES = ((2, 1), (4, 1), (4, 2), (4, 4))
# A scheme of half the work is worth this factor in error.
_NEARLY = 1.5
# A rollout this close is at the rounding errors of its float32 reference: more stages cannot help.
_PERFECT = 2e-5
# Above this error the fit by symbols and Linear are tried too. Chosen on reactions and on noisy data.
_POOR = 0.1
_BLOCK_POINTS = 2**20
_log = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A fitted step and its rollout error on held-out trajectories."""

    step: SGNOX
    error: float


class Start(NamedTuple):
    """The step to train from, its rollout error on held-out trajectories (None where nothing was judged), all
    candidates, and whether products were wanted but none was found."""

    step: SGNOX
    error: float | None
    candidates: tuple[Candidate, ...] = ()
    no_products: bool = False


def start_from_data(step: SGNOX, trajectories: np.ndarray, *, key: PRNGKeyArray) -> Start:
    """The step to train from.

    1. A trapping set around the training data.
    2. The products of the closure, by regression (`select`).
    3. For each scheme: rates, contributions and forcing by regression, then corrected mode by mode until
       one step of the scheme reproduces the pairs (`refine`).
    4. The cheapest scheme whose rollouts of held-out trajectories are nearly as good as the best.
    5. If all of them are poor, the same by way of symbols (`fit_symbols`), and a step without products, which
       is taken only if it is better than all others.

    **Raises:** `InputError` if there are fewer than two times or a value is not finite.
    """
    if trajectories.shape[1] < 2 or not np.isfinite(trajectories).all():
        raise InputError(
            f"The trajectories of shape {trajectories.shape} need at least two times and finite values. "
            "Leave out the samples that diverged."
        )
    step = _trap(step, trajectories)
    if step.config.start == "random":
        return Start(step, None)
    pairs = split(trajectories)
    if step.config.start == "linear":
        linear = first_estimate(pairs.fit, step.grid, Selection((), step.config.cutoff, False))
        return Start(install_linear(step, linear), None)

    def candidate(chosen: Selection, scheme: tuple[int, int], slow: SplitPairs | None = None) -> Candidate:
        """The step with this closure and scheme, fitted; given slow pairs, from them by way of symbols."""
        stages, inner_steps = scheme
        settings = {"stages": stages, "inner_steps": inner_steps, **chosen._asdict()}
        trial = SGNOX(dataclasses.replace(step.config, **settings), step.grid, key=key)
        trial = eqx.tree_at(lambda s: s.trapping, trial, step.trapping, is_leaf=lambda x: x is None)
        estimate = first_estimate((slow or pairs).fit, step.grid, chosen)
        if slow is not None:
            estimate = fit_symbols(trial, estimate, pairs.fit)
        trial = install(trial, refine(trial, estimate, pairs))
        return Candidate(trial, rollout_error(trial, held_out(trajectories)))

    chosen = _choose(step, pairs)
    candidates: list[Candidate] = []
    schemes = _schemes(step, nonlinear=bool(chosen.terms))
    for i, scheme in enumerate(schemes, start=1):
        tell(f"candidate {i} of at most {len(schemes)}")
        candidates.append(candidate(chosen, scheme))
        if candidates[-1].error < _PERFECT:
            break
    wanted = step.config.closure == "products"
    if wanted and min(c.error for c in candidates) > _POOR:
        slow = pairs.slower()
        by_symbols = _choose(step, slow)
        forcings = (False, True) if "forcing" in step.open_choices else (step.config.forcing,)
        if by_symbols.terms:
            scheme = _schemes(step, nonlinear=True)[-1]
            candidates += [candidate(by_symbols._replace(forcing=f), scheme, slow) for f in forcings]
    best = min(c.error for c in candidates)
    found = next((c for c in candidates if c.error <= _NEARLY * best), candidates[-1])
    if found.error > _POOR and found.step.config.terms:
        linear = candidate(chosen._replace(terms=()), (1, 1))
        candidates.append(linear)
        found = linear if linear.error < best else found
    no_products = wanted and not found.step.config.terms
    if no_products:
        _log.log(
            logging.WARNING if found.error > _POOR else logging.INFO,
            "SGNO-X: no product lowered the error on held-out data, so the step is linear (held-out rollout "
            "error %.2g). If the equation is not linear, use data with less noise or closer frames, or name "
            "its products by terms=...",
            found.error,
        )
    return Start(found.step, found.error, tuple(candidates), no_products)


def _choose(step: SGNOX, pairs: SplitPairs) -> Selection:
    """The products, their cutoff and whether there is a forcing, as set or as the pairs say."""
    config, open_choices = step.config, step.open_choices
    search = "terms" in open_choices and config.closure == "products"
    chosen = select(
        pairs,
        step.grid,
        degree=config.degree,
        most=config.max_terms if search else 0,
        forcing=None if "forcing" in open_choices else config.forcing,
    )
    if "terms" not in open_choices:
        chosen = chosen._replace(terms=config.terms)
    return chosen if "cutoff" in open_choices else chosen._replace(cutoff=config.cutoff)


def _schemes(step: SGNOX, *, nonlinear: bool) -> list[tuple[int, int]]:
    """The stages and inner steps that the settings leave open, the cheapest first."""
    config, open_choices = step.config, step.open_choices
    schemes = _SCHEMES if nonlinear else ((1, 1),)
    if not config.second_stage:
        schemes = ((1, 1), (1, 2), (1, 4))
    stages = config.stages if "stages" not in open_choices or not config.second_stage else None
    inner_steps = None if "inner_steps" in open_choices else config.inner_steps
    return list(dict.fromkeys((stages or s, inner_steps or i) for s, i in schemes))


def rollout_error(step: SGNOX, held_out: np.ndarray) -> float:
    """The geometric mean over time of the mean nRMSE over held-out trajectories; infinite if not finite."""
    truth = np.moveaxis(held_out, 0, 1)
    count = truth.shape[0] - 1
    u0 = np.asarray(truth[0], np.float32)
    rolled = np.concatenate([*frames(as_trial(step), u0, count, room=ROOM)])
    axes = tuple(range(2, truth.ndim))
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.sqrt(((rolled - truth[1:]) ** 2).mean(axes))
    error = error / np.maximum(np.sqrt((truth[1:].astype(float) ** 2).mean(axes)), 1e-30)
    if not np.isfinite(error).all():
        return np.inf
    return float(np.exp(np.log(np.maximum(error.mean(1), 1e-12)).mean()))


def _trap(step: SGNOX, trajectories: np.ndarray) -> SGNOX:
    """The step with a trapping set around the trajectories, if it has one."""
    if step.trapping is None:
        return step
    envelope = np.zeros(())
    flat = trajectories.reshape(-1, *trajectories.shape[2:])
    block = max(1, _BLOCK_POINTS // int(np.prod(flat.shape[1:])))
    for i in range(0, len(flat), block):
        v = to_modes(flat[i : i + block].astype(np.float32), step.grid.points)
        envelope = np.maximum(envelope, np.abs(v).max(axis=0))
    trapping = TrappingSet(envelope, step.config.margin, step.grid.points)
    return eqx.tree_at(lambda s: s.trapping, step, trapping)


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
    return start_from_data(step, np.asarray(trajectories), key=key).step
