"""What a step does along a rollout: one-step errors, errors, and how much it stretches differences."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.engine import rollout
from sgno.step import Step, batch, prepare


class Measured(NamedTuple):
    """Of one step against reference trajectories, all norms root mean squares over points."""

    one_step: Float[Array, "times samples"]
    error: Float[Array, "times samples"]
    size: Float[Array, "times samples"]
    stretch: Float[Array, " states"]


def l2(u: Float[Array, "batch channels *points"]) -> Float[Array, " batch"]:
    """sqrt( sum_c mean_x u_c(x)² )."""
    points = int(np.prod(u.shape[2:]))
    return jnp.sqrt(jnp.sum(jnp.square(u), axis=tuple(range(1, u.ndim))) / points)


def measure(
    step: Step,
    reference: Float[Array, "times samples channels *points"],
    *,
    probes: int,
    iterations: int,
    key: PRNGKeyArray,
) -> Measured:
    """Roll out from the first states of the reference and compare.

    **Arguments:**

    - `reference`: true states, time first.
    - `probes`: how many times along the rollout the stretch is estimated, at the predicted and the true state
        of one sample each.
    - `iterations`: of the power iteration.
    """
    ready = prepare(step)
    states = rollout(ready, reference[0], len(reference) - 1, batched=True)
    error = jax.lax.map(lambda pair: l2(pair[0] - pair[1]), (states, reference[1:]))
    one_step = jax.lax.map(lambda pair: l2(batch(ready, pair[0]) - pair[1]), (reference[:-1], reference[1:]))
    times, samples = reference.shape[0], reference.shape[1]
    at = np.unique(np.linspace(0, times - 2, probes).astype(int))
    sample = np.arange(len(at)) % samples
    probed = jnp.concatenate([reference[at, sample], states[at, sample]])
    keys = jax.random.split(key, len(probed))
    stretch = jax.lax.map(lambda x: local_lipschitz(ready, x[0], iterations, key=x[1]), (probed, keys))
    size = jax.lax.map(l2, reference)
    return Measured(one_step, error, size, stretch)


def local_lipschitz(
    step: Step, u: Float[Array, "channels *points"], iterations: int | Array, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """|J x| / |x| for the Jacobian J of the step at u and a direction x found by power iteration on J^T J.

    The largest singular value of J is approached from below: a lower estimate of the local Lipschitz
    constant, up to rounding. Matrix-free: one Jacobian-vector and one vector-Jacobian product an iteration.
    """
    _, forward = jax.linearize(step, u)
    transpose = jax.linear_transpose(forward, u)

    def unit(x):
        norm = jnp.sqrt(jnp.sum(jnp.square(x)))
        return x / jnp.where(norm > 0, norm, 1)

    def improve(_, x):
        (back,) = transpose(unit(forward(x)))
        return unit(back)

    x = jax.lax.fori_loop(0, iterations, improve, unit(jax.random.normal(key, u.shape, u.dtype)))
    return jnp.sqrt(jnp.sum(jnp.square(forward(x))))
