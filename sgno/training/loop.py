"""The training loop: many updates per dispatch, several seeds at once if asked, resumable bit for bit."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.devices import (
    local_mesh,
    mean_over_devices,
    replicate,
    seeds_apart,
    shard_batch,
    shard_seeds,
)
from sgno.io.source import Source
from sgno.step import Step, chunk_size, fast_batch, prepare, trainable
from sgno.training.batches import take_windows
from sgno.training.chunks import mean_over_chunks
from sgno.training.config import TrainConfig
from sgno.training.feed import Resident, Streamed, feed
from sgno.training.state import TrainState

# The most updates in one dispatch, and how long one should take: progress and Ctrl-C wait for it.
_MAX_CHUNK = 2000
_CHUNK_SECONDS = 1.0


class Progress(NamedTuple):
    """What a callback hears after each dispatch. With several seeds, `state` and `losses` lead with them."""

    update: int
    updates: int
    loss: float
    updates_per_second: float
    state: TrainState
    losses: np.ndarray


class TrainResult(NamedTuple):
    """A trained step and how it went. `diverged_at` is the first update with a non-finite loss."""

    step: Step
    losses: np.ndarray
    state: TrainState
    diverged_at: int | None
    seconds_per_update: float


def initial_state(step: Step, config: TrainConfig, *, key: PRNGKeyArray) -> TrainState:
    """The state before the first update, in the config's precision. `key` orders the mini-batches."""
    params: PyTree = split(cast(step, jnp.dtype(config.precision)))[0]
    return TrainState(params, make_optimizer(config).init(params), jnp.zeros((), jnp.int32), key)


def split(step: Step) -> tuple[Step, Step]:
    """The trainable leaves of a step, and all the rest."""
    return eqx.partition(step, trainable(step))


def cast(step: Step, dtype: jnp.dtype) -> Step:
    """The step with its floating-point arrays in `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, step)


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    return optax.adam(config.schedule())


def train(
    step: Step,
    trajectories: Float[Array, "samples times channels *points"] | np.ndarray | Source,
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
    state: TrainState | None = None,
    losses: np.ndarray | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Minimise the one-step (or unrolled) error of `step` on all windows of the trajectories.

    **Arguments:**

    - `step`: the step to start from.
    - `trajectories`: `(samples, times, channels, *points)`; a `Source` is streamed in blocks.
    - `config`: the protocol.
    - `key`: orders the mini-batches (and draws the noise, if any).
    - `state`, `losses`: where an interrupted run stopped; training goes on exactly as if it had not.
    - `on_progress`: called after each dispatch, about once a second, with the state to checkpoint.

    **Returns:**

    A `TrainResult`. A diverging loss ends the training and is recorded, never raised.
    """
    step = cast(step, jnp.dtype(config.precision))
    if state is None:
        state = initial_state(step, config, key=key)
    frozen = split(step)[1]
    with feed(trajectories, config, [state.key]) as data:
        run = _run(state, frozen, data, config, losses, on_progress)
    return run.result(eqx.combine(run.state.params, frozen), run.state, run.losses)


def train_seeds(
    steps: Sequence[Step],
    trajectories: Float[Array, "samples times channels *points"] | np.ndarray | Source,
    config: TrainConfig,
    *,
    keys: Sequence[PRNGKeyArray],
    on_progress: Callable[[Progress], None] | None = None,
) -> list[TrainResult]:
    """Train several steps of one config together, in one program.

    An accelerator that one small network does not fill trains many in the time of one; several devices
    share the seeds, and a core of a CPU takes its own one after another (`python -m benchmarks.speed seeds`).

    **Returns:**

    One `TrainResult` per step. Training ends early only when every seed has diverged.
    """
    steps = [cast(step, jnp.dtype(config.precision)) for step in steps]
    stack = lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0]
    states = [initial_state(step, config, key=key) for step, key in zip(steps, keys, strict=True)]
    frozen = [split(step)[1] for step in steps]
    stacked, rest = jax.tree.map(stack, *states), jax.tree.map(stack, *frozen)
    with feed(trajectories, config, keys) as data:
        run = _run(stacked, rest, data, config, None, on_progress, seeds=len(steps))
    results = []
    # On one device first: a seed taken out of an array that is spread over several would make them all meet.
    together = jax.device_put(run.state, jax.local_devices()[0])
    for i, rest in enumerate(frozen):
        state = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        results.append(run.result(eqx.combine(state.params, rest), state, run.losses[i]))
    return results


class _Run(NamedTuple):
    """Where the loop ended; `losses` lead with the seeds if they were mapped."""

    state: TrainState
    losses: np.ndarray
    seconds_per_update: float

    def result(self, step: Step, state: TrainState, losses: np.ndarray) -> TrainResult:
        finite = np.isfinite(losses)
        diverged_at = None if finite.all() else int(np.argmin(finite))
        return TrainResult(step, losses, state, diverged_at, self.seconds_per_update)


def _run(
    state: TrainState,
    frozen: Step,
    source: Resident | Streamed,
    config: TrainConfig,
    losses: np.ndarray | None,
    on_progress: Callable[[Progress], None] | None,
    *,
    seeds: int | None = None,
) -> _Run:
    """Dispatch after dispatch until the last update or until every loss is non-finite.

    With a number of seeds, state and frozen leaves lead with them.
    """
    dispatch = _make_dispatch(config, loss_scale(source.at(0).data, config), seeds)
    done = int(jnp.max(state.update))
    # Where the first dispatch leaves its result, or the second would have to be compiled again.
    state, frozen = (shard_seeds(tree, seeds) if seeds else replicate(tree) for tree in (state, frozen))

    history = np.full((config.updates, *((seeds,) if seeds else ())), np.nan)
    if losses is not None:
        history[:done] = losses[:done]
    chunk, timed_updates, timed_seconds = 1, 0, 0.0
    alive = True
    while done < config.updates and alive:
        start = time.perf_counter()
        data, rows = source.at(done)
        rows = rows if seeds else rows[:, 0]
        count = min(chunk, len(rows))
        order = np.zeros((_MAX_CHUNK, *rows.shape[1:]), np.int32)
        order[:count] = rows[:count]
        state, recorded = dispatch(state, frozen, data, shard_batch(jnp.asarray(order)), count)
        recorded = np.asarray(recorded, np.float64)[:count]
        elapsed = time.perf_counter() - start
        # The first dispatch compiles, so it says nothing of speed.
        if chunk > 1:
            timed_updates, timed_seconds = timed_updates + count, timed_seconds + elapsed
        chunk = 2 if chunk == 1 else int(np.clip(count * _CHUNK_SECONDS / max(elapsed, 1e-6), 1, _MAX_CHUNK))
        history[done : done + count] = recorded
        done += count
        alive = bool(np.isfinite(recorded[-1]).any())
        if on_progress is not None:
            speed = timed_updates / timed_seconds if timed_seconds else 0.0
            so_far = np.moveaxis(history[:done], 0, -1)
            on_progress(Progress(done, config.updates, float(recorded[-1].mean()), speed, state, so_far))
    seconds = timed_seconds / timed_updates if timed_updates else float("nan")
    return _Run(state, np.moveaxis(history[:done], 0, -1), seconds)


def loss_scale(data: Float[Array, "samples times *state"], config: TrainConfig) -> float:
    """What the MSE is multiplied by."""
    if config.loss == "mse":
        return 1.0
    increment = sum(float(jnp.mean(jnp.square(jnp.diff(one, axis=0)))) for one in data) / data.shape[0]
    return 1 / max(increment, float(np.finfo(np.float32).tiny))


def batch_loss(
    step: Step,
    states: Float[Array, "times batch channels *points"],
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
    apart: bool = False,
) -> Float[Array, ""]:
    """Mean over the unrolled steps of the mean-squared error.

    The devices share the batch, unless each of them has seeds of its own (`apart`).
    """
    step = prepare(step)
    if config.noise > 0:
        u = states[0]
        noise = config.noise * jnp.std(u) * jax.random.normal(key, u.shape, u.dtype)
        states = states.at[0].add(noise)
    weights, rest = eqx.partition(step, eqx.is_inexact_array)

    def loss(weights: PyTree, states: Float[Array, "times batch channels *points"]) -> Float[Array, ""]:
        step = eqx.combine(weights, rest)
        u, total = states[0], jnp.zeros((), states.dtype)
        for target in states[1:]:
            u = fast_batch(step, u)
            total = total + jnp.mean(jnp.square(u - target))
            if config.pushforward:
                u = jax.lax.stop_gradient(u)
        return total / config.unroll

    def part(weights: PyTree, states: Float[Array, "times batch channels *points"]) -> Float[Array, ""]:
        return mean_over_chunks(loss, weights, states, chunk_size(step, states.shape[1], states.shape[3:]))

    return part(weights, states) if apart else mean_over_devices(part, weights, states)


def _make_dispatch(config: TrainConfig, scale: float, seeds: int | None):
    """A compiled function that makes `count` updates; `count` is traced, so no length recompiles.

    With a number of seeds its arguments lead with them.
    """
    optimizer = make_optimizer(config)
    apart = seeds is not None and local_mesh(seeds) is not None

    def loss(params, frozen, states, key):
        return scale * batch_loss(eqx.combine(params, frozen), states, config, key=key, apart=apart)

    def update(state: TrainState, frozen: PyTree, data: Array, windows: Array) -> tuple[TrainState, Array]:
        states = take_windows(data, windows, config.unroll)
        key = jax.random.fold_in(state.key, state.update)
        value, gradient = jax.value_and_grad(loss)(state.params, frozen, states, key)
        change, moments = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, change)
        return TrainState(params, moments, state.update + 1, state.key), value / scale

    @eqx.filter_jit
    def dispatch(state, frozen, data, order, count):
        arrays, rest = eqx.partition(frozen, eqx.is_array)

        def updates(state, arrays, data, order, count):
            def body(i, carry):
                state, recorded = carry
                state, value = update(state, eqx.combine(arrays, rest), data, order[i])
                return state, recorded.at[i].set(value)

            return jax.lax.fori_loop(0, count, body, (state, jnp.zeros(len(order), data.dtype)))

        many = updates if seeds is None else seeds_apart(updates, seeds)
        return many(state, arrays, data, order, count)

    # An array, so that a new count is new data and not a new program.
    return lambda state, frozen, data, order, count: dispatch(state, frozen, data, order, jnp.asarray(count))
