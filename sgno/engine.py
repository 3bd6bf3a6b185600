"""Rollout: apply a step again and again, and watch what comes out.

One body (a step, then every observer) has two drivers:

- `rollout` is a `lax.scan`: both modes of differentiation, in memory of about sqrt(n) states, and `vmap`.
- `stream` is a loop of blocks whose number of steps is data: any length in bounded memory, one compiled
  program for all lengths and strides, progress and Ctrl-C between blocks, and an early end where an observer
  asks for one.
"""

import abc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from sgno.devices import map_over_devices
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.step import (
    Step,
    batch,
    chunk_size,
    drive,
    fast_batch,
    host_batch,
    most_steps,
    prepare,
    visible,
)

# The most numbers of kept states a block holds: 64 MB in float32.
_BLOCK_NUMBERS = 16_000_000
_BLOCK_FRAMES = 4096
# How long a block should take, since progress and Ctrl-C wait for it.
_BLOCK_SECONDS = 0.5
_BLOCK_STEPS = 100_000
# States of a batch that `frames` holds at once, unless they are large.
ROOM = 256
# Rollouts of this many numbers take a step on the host, if it has one, less time than its program to compile.
_HOST_NUMBERS = 2**24


class Observer(eqx.Module):
    """Sees every state of a rollout, remembers what it likes, and returns a value for each state.

        memory = observer.init(u0)
        memory, output = observer(memory, t, u)  # the states after step t = 1, 2, ...

    States come as a batch `(B, C, *N)`, a batch of one if the rollout has a single state. An observer is a
    pytree: the arrays it holds are data of the compiled program.
    """

    @abc.abstractmethod
    def init(self, u0: Float[Array, "batch channels *points"]) -> PyTree:
        """The memory before the first step."""

    @abc.abstractmethod
    def __call__(
        self, memory: PyTree, t: Int[Array, ""], u: Float[Array, "batch channels *points"]
    ) -> tuple[PyTree, PyTree]:
        """The memory after step `t`, and the output for the states `u`."""

    def stops(self, memory: PyTree) -> Bool[Array, ""] | bool:
        """Whether a stream should end here. `rollout`, whose length is fixed, does not ask."""
        del memory
        return False


class Each(Observer):
    """`function(u)` of every state. What `observe` makes of a plain function."""

    function: Callable[[Array], PyTree]

    def init(self, u0):
        return None

    def __call__(self, memory, t, u):
        return None, self.function(u)


class Observed(NamedTuple):
    """A rollout with observers: the states, and for each observer its outputs `(times, ...)` at the kept
    steps and its memory after the last step."""

    states: Float[Array, "times *state"]
    seen: tuple[PyTree, ...]
    memory: tuple[PyTree, ...]


class Block(NamedTuple):
    """What a stream has found since its last block.

    After `step` steps: the kept states from number `start` on (an empty array if they are not wanted), each
    observer's outputs at these and its memory, and whether one of the observers ended the stream.
    """

    step: int
    start: int
    states: Float[np.ndarray, "times *state"]
    seen: tuple[PyTree, ...]
    memory: tuple[PyTree, ...]
    stopped: bool


class Carry(NamedTuple):
    """What goes from one step to the next: how many were taken, the states, the observers' memories."""

    t: Int[Array, ""]
    u: Float[Array, "*state"]
    memory: tuple[PyTree, ...]


Observers = Sequence[Observer | Callable[[Array], PyTree]]


@overload
def rollout(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    n: int,
    *,
    every: int = 1,
    observe: tuple[()] = (),
    include_start: bool = False,
    batched: bool | None = None,
    checkpoint: bool = True,
) -> Float[Array, "times *shown"]: ...


@overload
def rollout(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    n: int,
    *,
    every: int = 1,
    observe: Observers,
    include_start: bool = False,
    batched: bool | None = None,
    checkpoint: bool = True,
) -> Observed: ...


def rollout(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    n: int,
    *,
    every: int = 1,
    observe: Observers = (),
    include_start: bool = False,
    batched: bool | None = None,
    checkpoint: bool = True,
) -> Float[Array, "times *shown"] | Observed:
    """The states after steps `every, 2 every, ...` up to `n`.

    Compiled, differentiable in both modes, and free to be mapped over states or weights.

    **Arguments:**

    - `step`: any callable `(C, *N) -> (C, *N)`: a function, an Equinox module, an exponax stepper, a model.
    - `u0`: one state `(C, *N)`, or a batch `(B, C, *N)`.
    - `n`: the number of steps.
    - `every`: keep one state in `every`; memory grows with the number of kept states only.
    - `observe`: observers, or plain functions of a batch of states. They see every step, kept or not.
    - `include_start`: put `u0` in front of the states. Observers do not see it again.
    - `batched`: whether `u0` is a batch. By default its shape decides: two axes are one state, a step with a
        `grid` knows its number of axes, and other steps are tried on both.
    - `checkpoint`: a reverse-mode gradient holds about 2 sqrt(n) states and computes the others again. False
        holds what every step leaves behind: faster, in memory that grows with `n`.

    **Returns:** the states, `(n // every, *u0.shape)` or one more with `include_start`. With observers an
    `Observed`, which has them as `states`. States that are not finite are returned as they are.

    **Raises:** `InputError` if `every` does not lie between 1 and `n`, if the shape of `u0` does not say
    whether it is a batch, or if the step does not map it to its own shape.
    """
    _check_lengths(step, n, every)
    u0 = _as_floats(u0)
    observers = _as_observers(observe)
    many = _is_batch(step, u0, batched)
    states, seen, memory = _scan_rollout(step, u0, n // every, every, observers, many, checkpoint)
    shown = _shown(step, u0, many=many)
    states = jnp.concatenate([shown[None], states]) if include_start else states
    return Observed(states, seen, memory) if observers else states


def stream(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    n: int,
    *,
    every: int = 1,
    observe: Observers = (),
    states: bool = True,
    batched: bool | None = None,
) -> Iterator[Block]:
    """A rollout of any length in bounded memory, block by block, about two blocks a second.

    The devices share a batch. Not differentiable; use `rollout` for that.

    **Arguments:** those of `rollout`, and

    - `states`: False keeps what the observers see, but no states.

    **Returns:** blocks in order, together `n // every` kept times unless an observer stops the stream.

    **Raises:** `InputError` as `rollout` does.
    """
    _check_lengths(step, n, every)
    u0 = _as_floats(u0)
    observers = _as_observers(observe)
    many = _is_batch(step, u0, batched)
    u0 = u0 if many else u0[None]
    room = int(np.clip(_BLOCK_NUMBERS // max(u0.size, 1), 1, _BLOCK_FRAMES)) if states else _BLOCK_FRAMES
    return _blocks(step, begin(u0, observers, step), n, every, observers, room, states, many)


def _blocks(step, carry: Carry, n: int, every: int, observers, room: int, states: bool, many: bool):
    done, count, stopped = 0, 1, False
    while done < n and not stopped:
        # Never more kept states than there is room for.
        count = min(count, n - done, (room + done // every) * every - done)
        began = time.perf_counter()
        carry, stopped, (frames, seen) = run(step, carry, observers, count, every, room=room, states=states)
        first, done, stopped = done, int(carry.t), bool(stopped)
        elapsed = time.perf_counter() - began
        # Cut as numpy arrays: as a JAX array every length would be one more compiled program.
        kept = done // every - first // every
        frames, seen = jax.tree.map(lambda x, kept=kept: np.asarray(x)[:kept], (frames, seen))
        frames = np.empty((0, *_shown(step, carry.u).shape), carry.u.dtype) if frames is None else frames
        memory = jax.tree.map(np.asarray, carry.memory)
        yield Block(done, first // every, frames if many else frames[:, 0], seen, memory, stopped)
        # The first block compiles, so it does not tell the speed.
        grow = 2 * count if first == 0 else count * _BLOCK_SECONDS / max(elapsed, 1e-6)
        count = int(np.clip(grow, 1, min(_BLOCK_STEPS, 100 * count)))


def frames(
    step: Step, u0: Float[Array | np.ndarray, "batch channels *points"], n: int, *, room: int
) -> Iterator[Float[np.ndarray, "times batch channels *points"]]:
    """The states that a rollout shows after steps 1, 2, ... `n`, as numpy arrays of at most `room` times.

    One program serves every `n`; a step that knows how (`sgno.step.host_batch`) needs none."""
    u: Any = np.asarray(u0)
    on_host = n * u.size <= _HOST_NUMBERS and _host_step(step, 0, u) is not None
    carry = None if on_host else begin(jnp.asarray(u), (), step)
    for first in range(0, n, room):
        count = min(room, n - first)
        if carry is None:
            states = np.empty((count, *_shown(step, u).shape), u.dtype)
            for i in range(count):
                u = _host_step(step, first + i, u)
                states[i] = _shown(step, u)
        else:
            carry, _, (states, _) = run(step, carry, (), count, room=room, states=True)
        yield np.asarray(states)[:count]


def _host_step(step: Step, t: int, u: np.ndarray) -> np.ndarray | None:
    driven, z = drive(step, jnp.asarray(t), u)
    new = host_batch(driven, np.asarray(z))
    return None if new is None else new[:, : u.shape[1]]


def advance(
    step: Step, u: Float[Array, "batch channels *points"], n: int
) -> Float[Array, "batch channels *points"]:
    """The states of a batch `n` steps on, as fast as the machine can, by one program for every `n`."""
    return run(step, begin(u), (), n, room=0, states=False)[0].u


def begin(
    u0: Float[Array, "batch channels *points"], observers: tuple[Observer, ...] = (), step: Step | None = None
) -> Carry:
    """The carry of `run` before the first step. Observers need the step if it hides some of its channels."""
    shown = _shown(step, u0)
    return Carry(jnp.zeros((), jnp.int32), u0, tuple(observer.init(shown) for observer in observers))


def _shown(step: Step | None, u: Any, *, many: bool = True) -> Any:
    """The channels that a rollout shows of a state, or of a batch of states."""
    channels = visible(step)
    return u if channels is None else u[:, :channels] if many else u[:channels]


def run(
    step: Step,
    carry: Carry,
    observers: tuple[Observer, ...],
    count: int,
    every: int = 1,
    *,
    room: int,
    states: bool,
) -> tuple[Carry, Bool[Array, ""], tuple[Array | None, tuple[PyTree, ...]]]:
    """One block of a stream: `count` more steps, fewer if an observer stops.

    **Returns:** the carry, whether an observer stopped, and the kept states (None unless `states`) and
    outputs, at the front of buffers of `room` times.
    """
    # Arrays, so that a new count is new data and not a new program.
    count_, every_ = jnp.asarray(count, jnp.int32), jnp.asarray(every, jnp.int32)
    return _run(step, carry, observers, count_, every_, room, states)


@eqx.filter_jit
def _run(step, carry: Carry, observers, count: Array, every: Array, room: int, states: bool):
    prepared = prepare(step)
    first = carry.t
    forward = _body(step, _driven(prepared, _fast_step), observers)

    def kept(carry: Carry):
        carry, seen = forward(carry)
        return carry, (_shown(step, carry.u) if states else None, seen)

    def one(at):
        carry, _, buffers = at
        carry, found = kept(carry)
        # A state that is not kept is written nowhere: behind the last place.
        slot = jnp.where(carry.t % every == 0, carry.t // every - first // every - 1, room)
        buffers = jax.tree.map(lambda into, x: into.at[slot].set(x, mode="drop"), buffers, found)
        stopped = [jnp.asarray(o.stops(m)) for o, m in zip(observers, carry.memory, strict=True)]
        return carry, jnp.any(jnp.stack([jnp.asarray(False), *stopped])), buffers

    like = jax.eval_shape(kept, carry)[1]
    buffers = jax.tree.map(lambda x: jnp.zeros((room, *x.shape), x.dtype), like)
    going = lambda at: (at[0].t - first < count) & ~at[1]
    return jax.lax.while_loop(going, one, (carry, jnp.asarray(False), buffers))


def _fast_step(
    prepared: Step, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    """`fast_batch(prepared, u)`: the devices share the states, and a CPU takes a few of them at a time."""
    weights, rest = eqx.partition(prepared, eqx.is_array)

    def part(weights, u):
        step = eqx.combine(weights, rest)
        size = chunk_size(step, u.shape[0], u.shape[2:])
        if size == u.shape[0]:
            return fast_batch(step, u)
        chunks = u.reshape(-1, size, *u.shape[1:])
        return jax.lax.map(lambda chunk: fast_batch(step, chunk), chunks).reshape(u.shape)

    return map_over_devices(part, weights, u)


@eqx.filter_jit
def _scan_rollout(step, u0: Array, kept: int, every: int, observers, many: bool, checkpoint: bool):
    prepared = prepare(step)
    apply = batch if many else lambda step, u: step(u)
    forward = _body(step, _driven(prepared, apply, int(many)), observers, many=many)
    carry = begin(u0 if many else u0[None], observers, step)._replace(u=u0)
    # The outputs of the last step travel along, so that the body is compiled once.
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(forward, carry)[1])

    def frame(carry: Carry):
        (carry, seen), _ = _scan(lambda at: (forward(at[0]), None), (carry, blank), every, checkpoint)
        return carry, (_shown(step, carry.u, many=many), seen)

    carry, (states, seen) = _scan(frame, carry, kept, checkpoint)
    return states, seen, carry.memory


def _scan(body: Callable[[PyTree], tuple[PyTree, PyTree]], carry: PyTree, length: int, checkpoint: bool):
    """`lax.scan` of `body`, for gradients in about sqrt(length) segments of about sqrt(length) steps.

    The backward pass keeps the start of each segment, then for one segment at a time the start of each step,
    and computes everything else again.
    """
    if length == 1:
        carry, out = body(carry)
        return carry, jax.tree.map(lambda x: x[None], out)
    again = partial(jax.checkpoint, prevent_cse=False) if checkpoint else lambda f: f
    plain = lambda body, carry, length: jax.lax.scan(lambda c, _: body(c), carry, None, length=length)
    body, size = again(body), _segment(length) if checkpoint else length
    if size == length:
        return plain(body, carry, length)
    carry, out = plain(again(lambda carry: plain(body, carry, size)), carry, length // size)
    out = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)
    if rest := length % size:
        carry, last = plain(body, carry, rest)
        out = jax.tree.map(lambda *x: jnp.concatenate(x), out, last)
    return carry, out


def _segment(length: int) -> int:
    """A divisor within a factor of two of sqrt(length), or its floor: a rest would be compiled once more."""
    root = math.isqrt(length)
    return next((size for size in range(2 * root, root // 2, -1) if length % size == 0), root)


def _driven(prepared: Step, apply: Callable[[Step, Array], Array], axis: int = 1):
    """`apply` of the step at frame `t` and the state, with the inputs of that time as channels."""

    def forward(t: Array, u: Array) -> Array:
        driven, z = drive(prepared, t, u)
        new = apply(driven, z)
        return new if z is u else jax.lax.slice_in_dim(new, 0, u.shape[axis], axis=axis)

    return forward


def _body(
    step: Step,
    forward: Callable[[Array, Array], Array],
    observers: tuple[Observer, ...],
    *,
    many: bool = True,
):
    """A step, then every observer: what all rollouts repeat."""

    def body(carry: Carry) -> tuple[Carry, tuple[PyTree, ...]]:
        t, u = carry.t + 1, _checked(partial(forward, carry.t), carry.u)
        states = _shown(step, u if many else u[None])
        found = [o(memory, t, states) for o, memory in zip(observers, carry.memory, strict=True)]
        return Carry(t, u, tuple(memory for memory, _ in found)), tuple(output for _, output in found)

    return body


def _checked(forward: Callable[[Array], Array], u: Array) -> Array:
    """`forward(u)`, with an error of ours if the step cannot take such states. Free once compiled."""
    try:
        new = forward(u)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The step cannot take states of shape {u.shape}: {reason}") from error
    if (new.shape, new.dtype) != (u.shape, u.dtype):
        raise InputError(
            f"The step maps states of shape {u.shape} ({u.dtype}) to {new.shape} ({new.dtype}), so it cannot "
            "be rolled out. Pass states that it maps to states of the same shape and dtype."
        )
    return new


def _check_lengths(step: Step, n: int, every: int) -> None:
    most = most_steps(step)
    if most is not None and n > most:
        raise InputError(
            f"The inputs of the step are known for {most} steps, not for {n}. Give them for more frames."
        )
    if not 1 <= every <= n:
        raise InputError(f"every={every} must lie between 1 and the number of steps, {n}.")


def _as_floats(u0) -> Array:
    u0 = jnp.asarray(u0)
    return u0 if jnp.issubdtype(u0.dtype, jnp.inexact) else u0.astype(float)


def _as_observers(observe: Observers) -> tuple[Observer, ...]:
    return tuple(o if isinstance(o, Observer) else Each(o) for o in observe)


def _is_batch(step: Step, u0: Array, batched: bool | None) -> bool:
    """Whether `u0` is a batch of states of this step."""
    if u0.ndim < (3 if batched else 2):
        wanted = "a batch (B, C, *N)" if batched else "a state (C, *N), channels first"
        raise InputError(f"u0 has the shape {u0.shape}, but {wanted} is needed.")
    if batched is not None or u0.ndim == 2:
        return bool(batched)
    grid = getattr(step, "grid", None)
    if isinstance(grid, Grid):
        extra = u0.ndim - 1 - grid.num_spatial_dims
        if extra not in (0, 1):
            raise InputError(
                f"u0 has the shape {u0.shape}, but the step takes states {grid.shape} or batches of them."
            )
        return extra == 1
    one, many = _fits(step, u0), _fits(jax.vmap(step), u0)
    if one == many:
        found = "both as one state and as a batch" if one else "neither as one state nor as a batch"
        raise InputError(
            f"The step takes u0 of shape {u0.shape} {found}. Pass batched=True for a batch (B, C, *N), or "
            "batched=False for one state (C, *N)."
        )
    return many


def _fits(step: Step, u0: Array) -> bool:
    """Whether the step maps `u0` to its own shape."""
    try:
        return eqx.filter_eval_shape(step, u0).shape == u0.shape
    # A callable may refuse a shape by whatever it likes.
    except Exception:
        return False
