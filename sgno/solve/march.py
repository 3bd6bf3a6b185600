"""Rollouts of any length in bounded memory, with what is worth knowing of every kept state."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sgno.errors import InputError, unknown_name
from sgno.solve.advance import advance_batch
from sgno.solve.monitor import FAULTS, Reference, Signals, observe
from sgno.spectral import to_modes
from sgno.step import Step, batch, prepare

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

    `nonfinite_at` is the first step at which a sample was not finite, 0 while there was none. Under a monitor
    `signals` are those of the kept states, `faults` says the same of each of `FAULTS` as `nonfinite_at`, and
    `stopped` that the rollout ends with this piece because of one.
    """

    step: int
    start: int
    states: Float[np.ndarray, "times samples channels *points"] | None
    statistics: Statistics
    nonfinite_at: Int[np.ndarray, " samples"]
    signals: Signals | None
    faults: Int[np.ndarray, "faults samples"] | None
    stopped: bool


class _Carry(NamedTuple):
    """What goes from step to step: the states, and the first steps of what was noticed."""

    u: Float[Array, "samples channels *points"]
    nonfinite_at: Int[Array, " samples"]
    faults: Int[Array, "faults samples"]
    stopped: Bool[Array, ""]


class _Watch(NamedTuple):
    """What a rollout is held against, the modes it started from, and which of `FAULTS` end it."""

    reference: Reference
    start: Array
    stop_on: Bool[Array, " faults"]


def statistics(u: Float[Array, "samples channels *points"]) -> Statistics:
    """The statistics of a batch of states, without the axis of time."""
    axes = tuple(range(1, u.ndim))
    energy = jnp.mean(jnp.sum(jnp.square(u), axis=1), axis=tuple(range(1, u.ndim - 1)))
    return Statistics(energy, jnp.max(jnp.abs(u), axis=axes), jnp.all(jnp.isfinite(u), axis=axes))


def march(
    step: Step,
    u0: Float[np.ndarray | Array, "samples channels *points"],
    num_steps: int,
    *,
    every: int = 1,
    states: bool = True,
    watch: Reference | None = None,
    stop_on: Iterable[str] = (),
) -> Iterator[Piece]:
    """Roll out step by step and hand over what is kept, about twice a second.

    **Arguments:**

    - `step`: any step.
    - `u0`: the initial states. They are not handed over again.
    - `num_steps`: how far to go.
    - `every`: keep the states after steps `every, 2 every, ...`.
    - `states`: False keeps the statistics alone.
    - `watch`: `reference_statistics` of the training data: every step is held against them.
    - `stop_on`: the rollout ends with the first step at which one of these faults of `FAULTS` begins.

    **Returns:** pieces in order, together `num_steps // every` times unless stopped. Non-finite states are
    data like others; every step is watched for them, kept or not.

    **Raises:** `InputError` if `every` does not lie between 1 and `num_steps`, the step or the monitor cannot
    take `u0`, or a fault is not known.
    """
    if not 1 <= every <= num_steps:
        raise InputError(f"every={every} must lie between 1 and the number of steps, {num_steps}.")
    u = jnp.asarray(u0, jnp.float32)
    _check(step, u)
    watched = None if watch is None else _watch(watch, u, tuple(stop_on))
    room = int(np.clip(_BUFFER_NUMBERS // max(u.size, 1), 1, _MOST_KEPT)) if states else _MOST_KEPT
    none = jnp.zeros(u.shape[0], jnp.int32)
    carry = _Carry(u, none, jnp.stack([none] * len(FAULTS)), jnp.asarray(False))
    done, count = 0, 1
    while done < num_steps and not carry.stopped:
        # Never more kept states than there is room for.
        count = min(count, num_steps - done, (room + done // every) * every - done)
        begin = time.perf_counter()
        carry, taken, kept = _advance(step, carry, done, count, every, room, states, watched)
        taken = int(taken)
        elapsed = time.perf_counter() - begin
        first, last = done // every, (done + taken) // every
        # Cut as numpy arrays: as a JAX array every length would be one more compiled program.
        frames, numbers, signals = jax.tree.map(lambda x, n=last - first: np.asarray(x)[:n], kept)
        done += taken
        faults = None if watched is None else np.asarray(carry.faults)
        yield Piece(
            done, first, frames, numbers, np.asarray(carry.nonfinite_at), signals, faults, bool(carry.stopped)
        )
        # The first dispatch compiles, so it says nothing of speed.
        grow = 2 * count if done == count else count * _PIECE_SECONDS / max(elapsed, 1e-6)
        count = int(np.clip(grow, 1, min(_MOST_STEPS, 100 * count)))


def _watch(reference: Reference, u: Array, stop_on: tuple[str, ...]) -> _Watch:
    for fault in stop_on:
        if fault not in FAULTS:
            raise unknown_name("fault", fault, FAULTS)
    if (modes := to_modes(u, u.shape[2:])).shape[1:] != reference.multiplier.shape:
        raise InputError(
            f"The states have the shape {u.shape[1:]}, but the data to watch them by have "
            f"{(reference.multiplier.shape[0], *reference.points)}. Give data of the same channels and grid."
        )
    return _Watch(reference, modes, jnp.asarray([fault in stop_on for fault in FAULTS]))


def _check(step: Step, u: Array) -> None:
    """That the step takes these states, with an error of ours if it does not."""
    try:
        out = eqx.filter_eval_shape(lambda step, u: batch(prepare(step), u), step, u)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The model cannot take states of shape {u.shape[1:]}: {reason}") from error
    if out.shape != u.shape:
        raise InputError(
            f"The model maps states of shape {u.shape[1:]} to {out.shape[1:]}, so it cannot be rolled out."
        )


def _advance(step, carry: _Carry, done: int, count: int, every: int, room: int, states: bool, watch):
    # Arrays, so that a new count is new data and not a new program.
    start, length, stride = (jnp.asarray(n, jnp.int32) for n in (done, count, every))
    return _run(step, carry, start, length, stride, room, states, watch)


@eqx.filter_jit
def _run(step, carry: _Carry, done, count, every, room: int, states: bool, watch: _Watch | None):
    prepared = prepare(step)

    def notice(u: Array, t: Array) -> tuple[Statistics, Signals | None]:
        return statistics(u), None if watch is None else observe(watch.reference, watch.start, t, u)

    def body(at):
        i, (u, nonfinite_at, faults, stopped), buffers = at
        u = advance_batch(prepared, u)
        t = done + i + 1
        now, signals = notice(u, t)
        nonfinite_at = jnp.where((nonfinite_at == 0) & ~now.finite, t, nonfinite_at)
        if watch is not None and signals is not None:
            began = (faults == 0) & jnp.stack([getattr(signals, fault) for fault in FAULTS])
            faults = jnp.where(began, t, faults)
            stopped = jnp.any(began & watch.stop_on[:, None])
        # A state that is not kept is written nowhere: the place behind the last one.
        slot = jnp.where(t % every == 0, t // every - done // every - 1, room)
        put = lambda into, value: into.at[slot].set(value, mode="drop")
        kept = (u if states else None, now, signals)
        return i + 1, _Carry(u, nonfinite_at, faults, stopped), jax.tree.map(put, buffers, kept)

    like = jax.eval_shape(lambda u: (u if states else None, *notice(u, done)), carry.u)
    buffers = jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), like)
    going = lambda at: (at[0] < count) & ~at[1].stopped
    taken, carry, buffers = jax.lax.while_loop(going, body, (jnp.zeros((), jnp.int32), carry, buffers))
    return carry, taken, buffers
