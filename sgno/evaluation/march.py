"""Rollouts of any length in bounded memory, with what is worth knowing of every kept state."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sgno.errors import InputError
from sgno.models.step import AbstractStep

# The most numbers of kept states held at once: 64 MB in float32.
_BUFFER_NUMBERS = 16_000_000
_MOST_KEPT = 4096
# How long one dispatch should take: progress and Ctrl-C wait for it.
_PIECE_SECONDS = 0.5
_MOST_STEPS = 100_000


class Statistics(NamedTuple):
    """Of each kept state of each sample, `(times, samples)`: `energy`, the mean over the points of the sum
    over the channels of u²; `max`, the largest |u|; `finite`, whether every value is finite."""

    energy: Float[Array | np.ndarray, "times samples"]
    max: Float[Array | np.ndarray, "times samples"]
    finite: Bool[Array | np.ndarray, "times samples"]


class Piece(NamedTuple):
    """What became known since the last piece: after `step` steps, the kept states from number `start` on.

    `nonfinite_at` is the first step at which a sample was not finite, 0 while there was none.
    """

    step: int
    start: int
    states: Float[np.ndarray, "times samples channels *points"] | None
    statistics: Statistics
    nonfinite_at: Int[np.ndarray, " samples"]


def statistics(u: Float[Array, "samples channels *points"]) -> Statistics:
    """The statistics of a batch of states, without the axis of time."""
    axes = tuple(range(1, u.ndim))
    energy = jnp.mean(jnp.sum(jnp.square(u), axis=1), axis=tuple(range(1, u.ndim - 1)))
    return Statistics(energy, jnp.max(jnp.abs(u), axis=axes), jnp.all(jnp.isfinite(u), axis=axes))


def march(
    step: AbstractStep,
    u0: Float[np.ndarray | Array, "samples channels *points"],
    num_steps: int,
    *,
    every: int = 1,
    states: bool = True,
) -> Iterator[Piece]:
    """Roll out step by step and hand over what is kept, about twice a second.

    **Arguments:**

    - `step`: any step.
    - `u0`: the initial states. They are not handed over again.
    - `num_steps`: how far to go.
    - `every`: keep the states after steps `every, 2 every, ...`.
    - `states`: False keeps the statistics alone.

    **Returns:** pieces in order, together `num_steps // every` times. Non-finite states are data like others;
    every step is watched for them, kept or not.

    **Raises:** `InputError` if `every` does not lie between 1 and `num_steps`, or the step cannot take `u0`.
    """
    if not 1 <= every <= num_steps:
        raise InputError(f"every={every} must lie between 1 and the number of steps, {num_steps}.")
    u = jnp.asarray(u0, jnp.float32)
    _check(step, u)
    room = int(np.clip(_BUFFER_NUMBERS // max(u.size, 1), 1, _MOST_KEPT)) if states else _MOST_KEPT
    nonfinite_at = jnp.zeros(u.shape[0], jnp.int32)
    done, count = 0, 1
    while done < num_steps:
        # Never more kept states than there is room for.
        count = min(count, num_steps - done, (room + done // every) * every - done)
        begin = time.perf_counter()
        u, nonfinite_at, kept = _advance(step, u, nonfinite_at, done, count, every, room, states)
        jax.block_until_ready(u)
        elapsed = time.perf_counter() - begin
        first, done = done // every, done + count
        # Cut as numpy arrays: as a JAX array every length would be one more compiled program.
        frames, numbers = jax.tree.map(lambda x, n=done // every - first: np.asarray(x)[:n], kept)
        yield Piece(done, first, frames, numbers, np.asarray(nonfinite_at))
        # The first dispatch compiles, so it says nothing of speed.
        grow = 2 * count if done == count else count * _PIECE_SECONDS / max(elapsed, 1e-6)
        count = int(np.clip(grow, 1, min(_MOST_STEPS, 100 * count)))


def _check(step: AbstractStep, u: Array) -> None:
    """That the step takes these states, with an error of ours if it does not."""
    try:
        out = eqx.filter_eval_shape(lambda step, u: step.prepare().batch(u), step, u)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The model cannot take states of shape {u.shape[1:]}: {reason}") from error
    if out.shape != u.shape:
        raise InputError(
            f"The model maps states of shape {u.shape[1:]} to {out.shape[1:]}, so it cannot be rolled out."
        )


def _advance(step, u, nonfinite_at, done: int, count: int, every: int, room: int, states: bool):
    # Arrays, so that a new count is new data and not a new program.
    start, length, stride = (jnp.asarray(n, jnp.int32) for n in (done, count, every))
    return _run(step, u, nonfinite_at, start, length, stride, room, states)


@eqx.filter_jit
def _run(step, u, nonfinite_at, done, count, every, room: int, states: bool):
    prepared = step.prepare()
    samples = u.shape[0]
    buffer = jnp.zeros((room, *u.shape), u.dtype) if states else None
    watched = Statistics(
        jnp.zeros((room, samples)), jnp.zeros((room, samples)), jnp.zeros((room, samples), bool)
    )

    def body(i, carry):
        u, nonfinite_at, buffer, watched = carry
        u = prepared.batch(u)
        t = done + i + 1
        now = statistics(u)
        nonfinite_at = jnp.where((nonfinite_at == 0) & ~now.finite, t, nonfinite_at)
        # A state that is not kept is written nowhere: the place behind the last one.
        slot = jnp.where(t % every == 0, t // every - done // every - 1, room)
        put = lambda into, value: into.at[slot].set(value, mode="drop")
        return u, nonfinite_at, None if buffer is None else put(buffer, u), jax.tree.map(put, watched, now)

    u, nonfinite_at, buffer, watched = jax.lax.fori_loop(0, count, body, (u, nonfinite_at, buffer, watched))
    return u, nonfinite_at, (buffer, watched)
