"""A trained step as an ONNX model, for any runtime that reads ONNX: servers, C++, phones, a browser.

    import onnxruntime
    step = onnxruntime.InferenceSession("step.onnx")
    (u_next,) = step.run(None, {"u": u})      # u: float32 (batch, channels, *points), any batch

ONNX has no complex numbers, and few runtimes have its Fourier transform. So the program that JAX traces for
one state is translated primitive by primitive: a complex value is a pair of real tensors, a Fourier transform
along an axis is a product with its matrix, what depends on the weights alone is computed beforehand, and
every tensor has the batch as its leading axis. This works for every step, not for our models alone.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sgno.export.onnx.elementwise
import sgno.export.onnx.products
import sgno.export.onnx.structure  # noqa: F401
from sgno.errors import InputError, require
from sgno.export.onnx.graph import Graph, Tensor
from sgno.export.stablehlo import single_precision
from sgno.grid import Grid
from sgno.io.commit import write_bytes
from sgno.step import Step, prepare

OPSET = 17


def export_onnx(path: Path, step: Step, grid: Grid, *, metadata: dict[str, Any] | None = None) -> None:
    """Write a step for states of shape `grid.shape`, whole or not at all.

    **Arguments:**

    - `path`: the file to write.
    - `step`: any step; its weights are written in float32.
    - `grid`: the shape of a state. The number of states stays open.
    - `metadata`: plain values kept in the file, such as units and provenance.

    **Raises:** `InputError` if the step cannot run on this grid or uses an operation that is not translated.
    """
    onnx = require("onnx", "onnx", "An ONNX file")
    prepared = prepare(single_precision(step))
    state = jax.ShapeDtypeStruct(grid.shape, jnp.float32)
    try:
        program = jax.make_jaxpr(prepared)(state)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The step cannot be exported for states of shape {grid.shape}: {reason}") from error
    graph = Graph(onnx)
    consts = [np.asarray(c) for c in program.consts]
    (out,) = graph.run(program.jaxpr, consts, [Tensor(("u",), grid.shape, np.dtype(np.float32))])
    shape = ["batch", *grid.shape]
    graph.node("Identity", graph.tensor(out).parts[:1], "u_next")
    info = onnx.helper.make_tensor_value_info
    float32 = onnx.TensorProto.FLOAT
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "step",
            [info("u", float32, shape)],
            [info("u_next", float32, shape)],
            initializer=graph.initializers,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        producer_name="sgno",
    )
    # The newest format version that the runtimes of this opset read.
    model.ir_version = 8
    content = {"grid": {"channels": grid.channels, "points": list(grid.points)}, **(metadata or {})}
    onnx.helper.set_model_props(model, {name: json.dumps(value) for name, value in content.items()})
    onnx.checker.check_model(model)
    write_bytes(path, [model.SerializeToString()])
