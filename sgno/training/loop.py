"""The training loop: many updates per dispatch, seeds mapped, resumable bit for bit."""

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.models.step import AbstractStep
from sgno.training.batches import batch_plan, num_windows, take_windows
from sgno.training.config import TrainConfig
from sgno.training.state import TrainState

# The most updates in one dispatch, and how long one should take: progress and Ctrl-C wait for it.
_MAX_CHUNK = 2000
_CHUNK_SECONDS = 1.0


class Progress(NamedTuple):
    """What a callback hears after each dispatch."""

    update: int
    updates: int
    loss: float
    updates_per_second: float
    state: TrainState
    losses: np.ndarray


class TrainResult(NamedTuple):
    """A trained step and how it went. `diverged_at` is the first update with a non-finite loss."""

    step: AbstractStep
    losses: np.ndarray
    state: TrainState
    diverged_at: int | None
    seconds_per_update: float


def initial_state(step: AbstractStep, config: TrainConfig, *, key: PRNGKeyArray) -> TrainState:
    """The state before the first update. `key` orders the mini-batches."""
    params, _ = split(step)
    return TrainState(params, make_optimizer(config).init(params), jnp.zeros((), jnp.int32), key)


def split(step: AbstractStep) -> tuple[AbstractStep, AbstractStep]:
    """The trainable leaves of a step, and all the rest."""
    return eqx.partition(step, step.trainable())


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    return optax.adam(config.schedule())


def train(
    step: AbstractStep,
    trajectories: Float[Array, "samples times channels *points"] | np.ndarray,
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
    - `trajectories`: `(samples, times, channels, *points)`.
    - `config`: the protocol.
    - `key`: orders the mini-batches (and draws the noise, if any).
    - `state`, `losses`: where an interrupted run stopped; training goes on exactly as if it had not.
    - `on_progress`: called after each dispatch, about once a second, with the state to checkpoint.

    **Returns:**

    A `TrainResult`. A diverging loss ends the training and is recorded, never raised.
    """
    dtype = jnp.dtype(config.precision)
    data = jnp.asarray(trajectories, dtype)
    if state is None:
        state = initial_state(cast(step, dtype), config, key=key)
    windows = data.shape[0] * num_windows(data.shape[1], config.unroll)
    plan = batch_plan(windows, config.updates, config.batch_size, key=state.key)
    _, static = split(cast(step, dtype))
    run = _make_dispatch(config, static, loss_scale(data, config))

    done = int(state.update)
    history = np.full(config.updates, np.nan, np.float64)
    if losses is not None:
        history[:done] = losses[:done]
    chunk, timed_updates, timed_seconds = 1, 0, 0.0
    diverged_at = None
    while done < config.updates and diverged_at is None:
        count = min(chunk, config.updates - done)
        order = np.zeros((_MAX_CHUNK, plan.shape[1]), np.int32)
        order[:count] = plan[done : done + count]
        start = time.perf_counter()
        state, recorded = run(state, data, jnp.asarray(order), count)
        recorded = np.asarray(recorded[:count], np.float64)
        elapsed = time.perf_counter() - start
        if chunk > 1:
            timed_updates, timed_seconds = timed_updates + count, timed_seconds + elapsed
        history[done : done + count] = recorded
        if not np.isfinite(recorded).all():
            diverged_at = done + int(np.argmin(np.isfinite(recorded)))
        done += count
        # The first dispatch compiles, so it says nothing of speed.
        chunk = 2 if chunk == 1 else int(np.clip(count * _CHUNK_SECONDS / max(elapsed, 1e-6), 1, _MAX_CHUNK))
        if on_progress is not None:
            speed = timed_updates / timed_seconds if timed_seconds else 0.0
            on_progress(Progress(done, config.updates, recorded[-1], speed, state, history[:done]))
    return TrainResult(
        eqx.combine(state.params, static),
        history[:done],
        state,
        diverged_at,
        timed_seconds / timed_updates if timed_updates else float("nan"),
    )


def cast(step: AbstractStep, dtype: jnp.dtype) -> AbstractStep:
    """The step with its floating-point arrays in `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, step)


def loss_scale(data: Float[Array, "samples times *state"], config: TrainConfig) -> float:
    """What the MSE is multiplied by."""
    if config.loss == "mse":
        return 1.0
    increment = sum(float(jnp.mean(jnp.square(jnp.diff(one, axis=0)))) for one in data) / data.shape[0]
    return 1 / max(increment, float(np.finfo(np.float32).tiny))


def batch_loss(
    step: AbstractStep,
    states: Float[Array, "times batch channels *points"],
    config: TrainConfig,
    *,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Mean over the unrolled steps of the mean-squared error."""
    step = step.prepare()
    u = states[0]
    if config.noise > 0:
        u = u + config.noise * jnp.std(u) * jax.random.normal(key, u.shape, u.dtype)
    total = jnp.zeros((), u.dtype)
    for target in states[1:]:
        u = step.batch(u)
        total = total + jnp.mean(jnp.square(u - target))
        if config.pushforward:
            u = jax.lax.stop_gradient(u)
    return total / config.unroll


def _make_dispatch(config: TrainConfig, static: AbstractStep, scale: float):
    """A compiled function that makes `count` updates; `count` is traced, so no length recompiles."""
    optimizer = make_optimizer(config)

    def loss(params, states, key):
        return scale * batch_loss(eqx.combine(params, static), states, config, key=key)

    def update(state: TrainState, data, windows) -> tuple[TrainState, Array]:
        states = take_windows(data, windows, config.unroll)
        key = jax.random.fold_in(state.key, state.update)
        value, gradient = jax.value_and_grad(loss)(state.params, states, key)
        change, moments = optimizer.update(gradient, state.optimizer, state.params)
        params = optax.apply_updates(state.params, change)
        return TrainState(params, moments, state.update + 1, state.key), value / scale

    @jax.jit
    def dispatch(state, data, order, count):
        def body(i, carry):
            state, recorded = carry
            state, value = update(state, data, order[i])
            return state, recorded.at[i].set(value)

        recorded = jnp.zeros(order.shape[0], data.dtype)
        return jax.lax.fori_loop(0, count, body, (state, recorded))

    return dispatch
