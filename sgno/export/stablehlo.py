"""A trained step as serialised StableHLO: a program with its weights inside, for any number of states.

Any later JAX runs it, without this package and without Equinox:

    import jax.export
    step = jax.export.deserialize(open("step.stablehlo", "rb").read())
    u_next = step.call(u)                # u: float32 (batch, channels, *points), any batch

`step.mlir_module()` is its text, for the other tools that read StableHLO (IREE, OpenXLA, TensorFlow).
"""

from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.commit import write_bytes
from sgno.step import Step, prepare

PLATFORMS = ("cpu", "cuda", "tpu")


def export_stablehlo(path: Path, step: Step, grid: Grid) -> None:
    """Write a step for states of shape `grid.shape`, whole or not at all.

    **Arguments:**

    - `path`: the file to write.
    - `step`: any step; its weights are written in float32.
    - `grid`: the shape of a state. The number of states stays open.

    **Raises:** `InputError` if the step cannot run on this grid.
    """
    program = exported(step, grid)
    try:
        content = program.serialize()
    except ImportError as error:
        raise InputError("Serialised StableHLO needs flatbuffers: pip install flatbuffers") from error
    write_bytes(path, [bytes(content)])


def exported(step: Step, grid: Grid) -> jax.export.Exported:
    """The step as an exported function of `(batch, *grid.shape)`."""
    prepared = prepare(single_precision(step))

    def advance(u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        # Not `batch`, whose layouts depend on the number of states, which is unknown here.
        return jax.vmap(prepared)(u)

    (batch,) = jax.export.symbolic_shape("batch")
    states = jax.ShapeDtypeStruct((batch, *grid.shape), jnp.float32)
    try:
        return jax.export.export(jax.jit(advance), platforms=PLATFORMS)(states)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The step cannot be exported for states of shape {grid.shape}: {reason}") from error


def single_precision(step: Step) -> Step:
    """The step with every floating-point array in float32."""

    def cast(leaf):
        return leaf.astype(jnp.float32) if getattr(leaf, "dtype", None) == np.float64 else leaf

    return jax.tree.map(cast, step)
