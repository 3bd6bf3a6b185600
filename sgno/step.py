"""What a step is: any callable that maps a state `(C, *N)` to the next one.

A plain function, an Equinox module, an exponax stepper and a model of ours are all steps. What a rollout or a
training would like to know beyond `step(u)` are the functions below. Each has a default that is right for
every callable, and a model that knows better registers its own version:

    @sgno.step.batch.register
    def _(step: MyModel, u):
        return my_faster_layout(step, u)
"""

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

Step = Callable[[Array], Array]

# About this many points at a time keep an update in the cache of a core: twice as fast as a batch of 20, for
# SGNO in 3D and for SGNO-X in 2D.
_POINTS_AT_ONCE = 5120
# Norms square a weight and add a few hundred of them up: 2^120 times 2^7 is the end of float32.
LARGEST = 2.0**60


@singledispatch
def prepare(step: Any) -> Any:
    """The same step with everything that depends on the weights alone computed once.

    Default: the step itself. Training calls it once for each update, a rollout once for each trajectory.
    """
    return step


@singledispatch
def batch(step: Any, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    """Advance many states at once. Default: `jax.vmap(step)`. Differentiable in both modes."""
    return jax.vmap(step)(u)


@singledispatch
def fast_batch(
    step: Any, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    """`batch` as training and scoring run it: tuned for this machine, perhaps without forward-mode gradients.

    Default: `batch`.
    """
    return batch(step, u)


@singledispatch
def host_batch(
    step: Any, u: Float[np.ndarray, "batch channels *points"]
) -> Float[np.ndarray, "batch channels *points"] | None:
    """`batch` in numpy, for steps so small that compiling them would take longer than running them.

    Default: None, there is no such version.
    """
    del step, u
    return None


@singledispatch
def trainable(step: Any) -> PyTree[bool]:
    """True at the leaves that an optimiser may change. Default: every floating-point array."""
    return jax.tree.map(eqx.is_inexact_array, step)


@singledispatch
def fault(step: Any) -> str | None:
    """What is wrong with the values of a step, as the part of a sentence; None if nothing is.

    Default: whether a number is not finite, or so large that its square does not fit into float32. Loading
    and certificates refuse such a step.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(step):
        if eqx.is_inexact_array_like(leaf):
            name, size = jax.tree_util.keystr(path), np.abs(np.asarray(leaf))
            if not np.isfinite(size).all():
                return f"it holds weights that are not finite ({name}), as a diverged training leaves them"
            if size.size and size.max() > LARGEST:
                return f"it holds a weight of {size.max():.3g} ({name}), whose square overflows"
    return None


@singledispatch
def states_at_once(step: Any, points: tuple[int, ...]) -> int | None:
    """How many states fit into a core's cache together with what a step makes of them. Default: any number.

    Training and scoring on a CPU take at most this many of a batch at a time (`chunk_size`).
    """
    del step, points
    return None


@singledispatch
def drive(step: Any, t: Int[Array, ""], u: Float[Array | np.ndarray, "*state"]) -> tuple[Any, Any]:
    """The step to take from frame `t` of a rollout, and the state that it takes: `u` with its known inputs of
    that time behind it. `u` is one state or a batch. Default: the step and `u`."""
    del t
    return step, u


@singledispatch
def most_steps(step: Any) -> int | None:
    """How many steps the inputs of a step are known for. Default: any number."""
    del step
    return None


@singledispatch
def advanced(step: Any) -> int | None:
    """How many channels of its states a step advances: those behind them are given at every time. Default:
    all."""
    del step
    return None


@singledispatch
def visible(step: Any) -> int | None:
    """How many channels of its states a rollout shows: the first of them. Default: all."""
    del step
    return None


def cached_states(points: tuple[int, ...]) -> int:
    """How many states a core's cache holds together with what a spectral step makes of them."""
    return max(1, _POINTS_AT_ONCE // math.prod(points))


def chunk_size(step: Step, batch_size: int, points: tuple[int, ...]) -> int:
    """The largest divisor of a batch within what `step` takes at once on a CPU; the whole batch elsewhere."""
    limit = states_at_once(step, points)
    if limit is None or jax.default_backend() != "cpu":
        return batch_size
    return next(size for size in range(min(limit, batch_size), 0, -1) if batch_size % size == 0)


class ParameterCount(NamedTuple):
    """`params` counts a complex number once, as the paper does for SGNO; `real` counts real numbers."""

    params: int
    real: int


@singledispatch
def count_parameters(step: Any) -> ParameterCount:
    """Floating-point numbers of a step, or of its shapes if it was not built, counted both ways.

    Complex weights are stored as two real arrays named `real` and `imag`: a pair counts once
    in `params` and twice in `real`. APEBench's baselines count real numbers either way.
    """
    leaves = [
        (path, leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(step)
        if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    real = sum(leaf.size for _, leaf in leaves)
    imaginary = sum(leaf.size for path, leaf in leaves if getattr(path[-1], "name", None) == "imag")
    return ParameterCount(real - imaginary, real)
