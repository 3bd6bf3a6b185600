"""The training loop: any step, any optax optimiser, any loss; resumable bit for bit."""

import logging
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.devices import mean_over_chunks, mean_over_devices, replicate, shard_batch
from sgno.errors import InputError
from sgno.identify import warm_start as fitted_start
from sgno.io.source import Source
from sgno.io.split import excerpt
from sgno.progress import tell
from sgno.step import Step, advanced, chunk_size, fast_batch, prepare, trainable, visible
from sgno.training.feed import Batching, feed, num_windows, take_windows
from sgno.training.state import TrainState

Precision = Literal["float32", "float64"]
Loss = Callable[[Float[Array, "channels *points"], Float[Array, "channels *points"]], Float[Array, ""]]

# The most updates in one dispatch, and how long one should take: progress and Ctrl-C wait for it.
_MAX_CHUNK = 2000
_CHUNK_SECONDS = 1.0
# Keys of updates are numbered from 0.
_START = 2**31 - 1
_log = logging.getLogger(__name__)


class Progress(NamedTuple):
    """What a callback is told after each dispatch."""

    update: int
    updates: int
    loss: float
    updates_per_second: float
    state: TrainState
    losses: np.ndarray


class TrainResult(NamedTuple):
    """A trained step and how it went. `diverged_at` is the first update with a non-finite loss."""

    step: Any
    losses: np.ndarray
    state: TrainState
    diverged_at: int | None
    seconds_per_update: float


def default_warmup(updates: int) -> int:
    """A fifth of the updates, at most 2,000: the paper's share at any length."""
    return min(updates // 5, 2_000)


def default_optimizer(
    updates: int, *, peak_rate: float = 1e-3, warmup: int | None = None
) -> optax.GradientTransformation:
    """Adam with a rate that rises linearly to `peak_rate` over the warm-up, then falls to 0 as a cosine."""
    warmup = default_warmup(updates) if warmup is None else warmup
    return optax.adam(optax.warmup_cosine_decay_schedule(0.0, peak_rate, warmup, max(updates, warmup + 1)))


def train(
    step: Step,
    trajectories: Float[Array, "samples times channels *points"] | np.ndarray | Source,
    *,
    optimizer: optax.GradientTransformation | None = None,
    loss: Loss | None = None,
    updates: int = 10_000,
    batch_size: int = 20,
    unroll: int = 1,
    pushforward: bool = False,
    noise: float = 0.0,
    precision: Precision = "float32",
    warm_start: bool = True,
    key: PRNGKeyArray,
    state: TrainState | None = None,
    losses: np.ndarray | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Minimise the one-step (or unrolled) error of a step over all windows of the trajectories.

        result = sgno.train(model, trajectories, optimizer=optax.adam(1e-3), updates=1000, key=key)

    **Arguments:**

    - `step`: any callable with arrays, `(channels, *points) -> (channels, *points)`.
    - `trajectories`: `(samples, times, channels, *points)`; a `Source` is streamed in blocks.
    - `optimizer`: any optax optimiser. Default: Adam, its rate warmed up over a fifth of the updates (at most
        2,000) to 1e-3, then a cosine to 0.
    - `loss`: `loss(prediction, target)`, a number for one predicted state and its target; what is minimised
        is its mean over the batch and over the unrolled steps. Default: the mean squared error.
    - `updates`, `batch_size`: how many updates, and of how many windows each.
    - `unroll`: train through this many steps; `pushforward` cuts the gradient between them.
    - `noise`: Gaussian noise added to the input, as a fraction of its standard deviation.
    - `precision`: of weights and states.
    - `warm_start`: first fit to the trajectories what least squares can find, for models that know how
        (`sgno.identify.warm_start`).
    - `key`: orders the mini-batches and draws the noise.
    - `state`, `losses`: where an interrupted run stopped; training goes on exactly as if it had not.
    - `on_progress`: called after each dispatch, about once a second, with the state to checkpoint.

    **Returns:** a `TrainResult`. A diverging loss ends the training and is recorded, never raised.

    **Raises:** `InputError` for a step without arrays, and for data or settings that cannot be trained with.
    """
    batching = Batching(updates, batch_size, unroll, precision)
    _check(step, trajectories, batching, noise)
    if warm_start:
        step = fitted_start(step, excerpt(trajectories), key=jax.random.fold_in(key, _START))
    optimizer = default_optimizer(updates) if optimizer is None else optimizer
    fresh = initial_state(step, optimizer, key=key, precision=precision)
    if not jax.tree.leaves(fresh.params) and updates:
        _log.warning("%s has nothing left to train, so no updates are made.", type(step).__name__)
        batching = batching._replace(updates=0)
    elif not updates:
        _log.info("updates=0: the step is returned as it starts.")
    if state is not None and jax.tree.structure(state) != jax.tree.structure(fresh):
        raise InputError(
            "The state is of another step or optimiser: its arrays differ from those of this training. "
            "Resume with the step, the optimiser and the key that it was made with."
        )
    frozen = split(cast(step, jnp.dtype(precision)))[1]
    batch_error = _batch_error(loss, unroll, pushforward, noise)
    state = fresh if state is None else state
    return _run(state, frozen, trajectories, batching, optimizer, batch_error, losses, on_progress)


def initial_state(
    step: Step,
    optimizer: optax.GradientTransformation,
    *,
    key: PRNGKeyArray,
    precision: Precision = "float32",
) -> TrainState:
    """The state before the first update."""
    params: PyTree = split(cast(step, jnp.dtype(precision)))[0]
    # One program instead of one for each shape of an array.
    return TrainState(params, eqx.filter_jit(optimizer.init)(params), jax.device_put(np.int32(0)), key)


def split(step: Step) -> tuple[Step, Step]:
    """The trainable leaves of a step, and all the rest."""
    return eqx.partition(step, trainable(step))


def cast(step: Step, dtype: jnp.dtype) -> Step:
    """The step with its floating-point arrays in `dtype`."""
    # A weakly typed array comes back strongly typed from an update, and the next would be compiled again.
    other = lambda x: x.dtype != dtype or getattr(x, "weak_type", False)
    differs = lambda x: eqx.is_inexact_array(x) and other(x)
    return jax.tree.map(lambda x: x.astype(dtype) if differs(x) else x, step)


def _check(step: Step, trajectories: Any, batching: Batching, noise: float) -> None:
    """Refuse what cannot be trained, and say what will not work as it was meant."""
    if batching.updates != 0 and not any(map(eqx.is_inexact_array, jax.tree.leaves(step))):
        raise InputError(
            f"{getattr(step, '__name__', type(step).__name__)} has no arrays to train. Pass a step that "
            "holds its weights, such as an equinox.Module."
        )
    for name, least in (("updates", 0), ("batch_size", 1), ("unroll", 1)):
        if getattr(batching, name) < least:
            raise InputError(f"{name}={getattr(batching, name)} must be at least {least}.")
    if not 0 <= noise < float("inf"):
        raise InputError(f"noise={noise} must be zero or positive.")
    if batching.precision == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError(
            "precision='float64' needs JAX's x64 mode. Use it inside `with jax.enable_x64(True):`."
        )
    shape = tuple(trajectories.shape)
    if len(shape) < 4 or 0 in shape:
        raise InputError(
            f"Trajectories are (samples, times, channels, *points), but these have shape {shape}."
        )
    if not isinstance(trajectories, Source) and not bool(np.isfinite(trajectories).all()):
        raise InputError(
            "The trajectories hold values that are not finite. Leave out the samples that diverged."
        )
    windows = shape[0] * num_windows(shape[1], batching.unroll)
    if windows < batching.batch_size and batching.updates:
        _log.warning(
            "batch_size=%d is more than there are windows to train on (%d): each update takes all of them.",
            batching.batch_size,
            windows,
        )


def _batch_error(loss: Loss | None, unroll: int, pushforward: bool, noise: float):
    """`error(step, states, key)`: the mean over a batch and over the unrolled steps."""

    def mean_loss(u: Float[Array, "batch *state"], target: Float[Array, "batch *state"]) -> Float[Array, ""]:
        if u.shape != target.shape:
            raise InputError(
                f"The step maps states of shape {target.shape[1:]} to {u.shape[1:]}. It must keep the shape."
            )
        if loss is None:
            return jnp.mean(jnp.square(u - target))
        values = jax.vmap(loss)(u, target)
        if values.ndim != 1:
            raise InputError(
                f"The loss returns an array of shape {values.shape[1:]} for one state. Return one number."
            )
        return jnp.mean(values)

    def error(
        step: Step, states: Float[Array, "times batch channels *points"], key: PRNGKeyArray
    ) -> Float[Array, ""]:
        step = prepare(step)
        shown, own = slice(visible(step)), advanced(step)
        if noise > 0:
            u = states[0, :, :own]
            states = states.at[0, :, :own].add(noise * jnp.std(u) * jax.random.normal(key, u.shape, u.dtype))
        weights, rest = eqx.partition(step, eqx.is_inexact_array)

        def unrolled(weights: PyTree, states: Float[Array, "times batch channels *points"]):
            step = eqx.combine(weights, rest)
            u, total = states[0], jnp.zeros((), states.dtype)
            for target in states[1:]:
                u = fast_batch(step, u)
                total = total + mean_loss(u[:, shown], target[:, shown])
                if own is not None:
                    u = jnp.concatenate([u[:, :own], target[:, own:]], axis=1)
                if pushforward:
                    u = jax.lax.stop_gradient(u)
            return total / unroll

        def part(weights: PyTree, states: Float[Array, "times batch channels *points"]):
            size = chunk_size(step, states.shape[1], states.shape[3:])
            return mean_over_chunks(unrolled, weights, states, size)

        return mean_over_devices(part, weights, states)

    return error


def _run(
    state: TrainState,
    frozen: Step,
    trajectories: Array | np.ndarray | Source,
    batching: Batching,
    optimizer: optax.GradientTransformation,
    error: Callable[..., Array],
    losses: np.ndarray | None,
    on_progress: Callable[[Progress], None] | None,
) -> TrainResult:
    """Dispatch after dispatch until the last update or until the loss is not finite."""
    if not batching.updates:
        return TrainResult(eqx.combine(state.params, frozen), np.zeros(0), state, None, float("nan"))
    dispatch = _make_dispatch(optimizer, error, batching.unroll)
    updates, done = batching.updates, int(state.update)
    # Where the first dispatch leaves its result, or the second would have to be compiled again.
    state, frozen = replicate(state), replicate(frozen)
    history = np.full(updates, np.nan)
    if losses is not None:
        history[:done] = losses[:done]
    chunk, timed_updates, timed_seconds, alive = 1, 0, 0.0, True
    tell("compiling the first update")
    with feed(trajectories, batching, state.key) as source:
        while done < updates and alive:
            start = time.perf_counter()
            data, rows = source.at(done)
            count = min(chunk, len(rows))
            order = np.zeros((_MAX_CHUNK, rows.shape[1]), np.int32)
            order[:count] = rows[:count]
            # The count is an array, so that a new count is new data and not a new program.
            state, recorded = dispatch(
                state, frozen, data, shard_batch(jnp.asarray(order)), jnp.asarray(count)
            )
            history[done : done + count] = np.asarray(recorded, np.float64)[:count]
            elapsed = time.perf_counter() - start
            # The first dispatch compiles, so it says nothing of speed.
            if chunk > 1:
                timed_updates, timed_seconds = timed_updates + count, timed_seconds + elapsed
            fitting = int(np.clip(count * _CHUNK_SECONDS / max(elapsed, 1e-6), 1, _MAX_CHUNK))
            chunk = 2 if chunk == 1 else fitting
            done += count
            alive = bool(np.isfinite(history[done - 1]))
            if on_progress is not None:
                speed = timed_updates / timed_seconds if timed_seconds else 0.0
                on_progress(Progress(done, updates, history[done - 1].item(), speed, state, history[:done]))
    history = history[:done]
    finite = np.isfinite(history)
    return TrainResult(
        step=eqx.combine(state.params, frozen),
        losses=history,
        state=state,
        diverged_at=None if finite.all() else int(np.argmin(finite)),
        seconds_per_update=timed_seconds / timed_updates if timed_updates else float("nan"),
    )


def _make_dispatch(optimizer: optax.GradientTransformation, error: Callable[..., Array], unroll: int):
    """A compiled function that makes `count` updates; `count` is traced, so no length recompiles."""
    optimizer = optax.with_extra_args_support(optimizer)

    def update(state: TrainState, frozen: PyTree, data: Array, windows: Array) -> tuple[TrainState, Array]:
        states = take_windows(data, windows, unroll)
        key = jax.random.fold_in(state.key, state.update)

        def value_of(params: PyTree) -> Array:
            return error(eqx.combine(params, frozen), states, key)

        value, gradient = jax.value_and_grad(value_of)(state.params)
        # Line searches and schedules that watch the loss ask for more than the gradient.
        change, moments = optimizer.update(
            gradient, state.optimizer, state.params, value=value, grad=gradient, value_fn=value_of
        )
        params = optax.apply_updates(state.params, change)
        return TrainState(params, moments, state.update + 1, state.key), value

    @eqx.filter_jit
    def dispatch(state, frozen, data, order, count):
        def body(i, carry):
            state, recorded = carry
            state, value = update(state, frozen, data, order[i])
            return state, recorded.at[i].set(value)

        return jax.lax.fori_loop(0, count, body, (state, jnp.zeros(len(order), data.dtype)))

    return dispatch
