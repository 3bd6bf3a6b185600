"""Closed-loop rollout: feed each prediction back as the next input."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sgno.solve.advance import advance_batch
from sgno.step import Step, prepare


def rollout(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    num_steps: int,
    *,
    every: int = 1,
    batched: bool = False,
) -> Float[Array, "times *state"]:
    """The states after steps `every, 2 every, ...` up to `num_steps`.

    **Arguments:**

    - `step`: any step.
    - `u0`: one state `(C, *N)`, or with `batched=True` many, `(B, C, *N)`.
    - `num_steps`: how far to go.
    - `every`: keep one state in so many; memory grows with what is kept alone.

    **Returns:**

    `(num_steps // every, *u0.shape)`; the initial state is not repeated. Non-finite states
    are returned as they are.
    """
    if not 1 <= every <= num_steps:
        raise ValueError(f"every={every} must lie between 1 and num_steps={num_steps}.")
    return _rollout(step, jnp.asarray(u0), num_steps // every, every, batched)


def stream(
    step: Step,
    u0: Float[Array | np.ndarray, "*state"],
    num_steps: int,
    *,
    chunk: int = 50,
    batched: bool = False,
) -> Iterator[np.ndarray]:
    """The rollout in pieces of at most `chunk` states: any length in bounded memory."""
    u = jnp.asarray(u0)
    for start in range(0, num_steps, chunk):
        states = _rollout(step, u, min(chunk, num_steps - start), 1, batched)
        u = states[-1]
        yield np.asarray(states)


@eqx.filter_jit
def _rollout(step: Step, u0: Array, kept: int, every: int, batched: bool) -> Array:
    prepared = prepare(step)
    advance = (lambda u: advance_batch(prepared, u)) if batched else prepared

    def body(u, _):
        u = jax.lax.fori_loop(0, every, lambda _, u: advance(u), u)
        return u, u

    return jax.lax.scan(body, u0, None, length=kept)[1]
