"""What SGNO computes from its weights alone (norm caps, generator, budget), without the rest of an update."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from sgno.nn.sgno import SGNO
from sgno.step import Step, prepare


def mixers(step: Step) -> list[Array]:
    """The real and the imaginary parts of all mixers of an SGNO, `(layers, out, in, *modes)`."""
    assert isinstance(step, SGNO) and step.layers.mixer is not None
    return [step.layers.mixer.real, step.layers.mixer.imag]


def capped(step: Step) -> Step:
    """The same step with every mixer far above its cap, where the norms take longest."""
    return eqx.tree_at(mixers, step, [100 * part for part in mixers(step)])


def gradient(step: Step) -> tuple[Callable[[PyTree], PyTree], PyTree]:
    """The gradient of the sum of squares of all coefficients, and the weights that it is taken at."""
    weights, rest = eqx.partition(step, eqx.is_inexact_array)

    def total(weights):
        prepared = eqx.filter(prepare(eqx.combine(weights, rest)), eqx.is_inexact_array)
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(prepared))

    return jax.grad(total), weights


def many(change: Callable[[PyTree], PyTree]) -> Callable[[PyTree, int], PyTree]:
    """`(weights, count)` to the weights after `count` changes, in one program as in training.

    Each depends on the one before, so that none can be left out.
    """

    def descend(_, weights):
        return jax.tree.map(lambda w, g: w - 1e-9 * g, weights, change(weights))

    return jax.jit(lambda weights, count: jax.lax.fori_loop(0, count, descend, weights))
