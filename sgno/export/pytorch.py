"""A trained step as a PyTorch module that needs neither this package nor JAX: a folder of three files.

OUT/step.py         the module, the same text for every export
OUT/settings.json   which model, its sizes, where the weights come from
OUT/weights.npz     coefficients as plain float32 arrays
"""

import functools
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgno.errors import InputError
from sgno.export.stablehlo import single_precision
from sgno.grid import Grid
from sgno.io.commit import new_folder, write_bytes
from sgno.io.files import write_json
from sgno.nn.layer import unstack
from sgno.nn.linear import Linear
from sgno.nn.normalised import Normalised
from sgno.nn.sgno import SGNO
from sgno.sgno_x import SGNOX
from sgno.sgno_x.trapping import sup_bound
from sgno.step import Step, prepare


class Parts(NamedTuple):
    """What the module text needs: settings as JSON, coefficients as float32 arrays."""

    settings: dict[str, Any]
    arrays: dict[str, np.ndarray]


def export_torch(
    folder: Path,
    step: Step,
    grid: Grid,
    provenance: Mapping[str, Any] | None = None,
    *,
    replace: bool = False,
):
    """Write a step as a PyTorch module, whole or not at all.

    **Arguments:**

    - `folder`: becomes `step.py`, `settings.json` and `weights.npz`; must not exist, but for `replace`.
    - `step`: an SGNO, an SGNO-X or a linear step, normalised or not.
    - `grid`: the states it was trained on.
    - `provenance`: kept in `settings.json`.

    **Raises:** `InputError` for any other step: those can be exported as StableHLO.
    """
    parts = torch_parts(single_precision(step), grid)
    identity = {"center": np.zeros(grid.channels), "scale": np.ones(grid.channels)}
    arrays = {name: np.asarray(a, np.float32) for name, a in {**identity, **parts.arrays}.items()}
    settings = {
        **parts.settings,
        "channels": grid.channels,
        "points": list(grid.points),
        "provenance": dict(provenance or {}),
    }
    if Path(folder).exists() and not replace:
        raise InputError(f"{folder} exists already. Choose another name or delete it.")
    with new_folder(folder, replace=replace) as beside:
        text = files("sgno.export").joinpath("torch_step.py").read_bytes()
        write_bytes(beside / "step.py", [text])
        np.savez(beside / "weights.npz", allow_pickle=False, **arrays)
        write_json(beside / "settings.json", json.loads(json.dumps(settings)))


@functools.singledispatch
def torch_parts(step: Step, grid: Grid) -> Parts:
    """The coefficients of a step for `torch_step.py`."""
    raise InputError(
        f"A {type(step).__name__} has no PyTorch form: only SGNO, SGNO-X and linear steps have one. "
        "Export it with --to stablehlo, which takes every model."
    )


def _pair(name: str, value: Any) -> dict[str, np.ndarray]:
    """A complex array as its two parts."""
    value = np.asarray(value)
    return {f"{name}.real": value.real, f"{name}.imag": np.ascontiguousarray(np.imag(value))}


@torch_parts.register
def _(step: Normalised, grid: Grid) -> Parts:
    parts = torch_parts(step.step, grid)
    units = {"center": np.asarray(step.mean), "scale": np.asarray(step.scale)}
    return Parts(parts.settings, {**parts.arrays, **units})


@torch_parts.register
def _(step: Linear, grid: Grid) -> Parts:
    return Parts({"kind": "linear"}, {"M.real": np.asarray(step.M_real), "M.imag": np.asarray(step.M_imag)})


@torch_parts.register
def _(step: SGNO, grid: Grid) -> Parts:
    prepared = jax.jit(lambda step: prepare(step))(step)
    width = prepared.lift.weight.shape[0]
    arrays: dict[str, Any] = {
        "lift.weight": prepared.lift.weight,
        "lift.bias": prepared.lift.bias,
        "head.first.weight": prepared.head.first.weight,
        "head.first.bias": prepared.head.first.bias,
        "head.second.weight": prepared.head.second.weight,
        "head.second.bias": prepared.head.second.bias,
    }
    for i, layer in enumerate(unstack(prepared.layers)):
        arrays[f"layers.{i}.local.weight"] = layer.weight[:width]
        arrays[f"layers.{i}.local.bias"] = layer.bias[:width]
        if layer.carry is not None:
            # The carry is real; as a complex number it multiplies like the rest.
            arrays |= _pair(f"layers.{i}.carry", jnp.moveaxis(layer.carry, -1, 0))
        if layer.coupling is not None:
            # A prepared layer holds [[Re, -Im], [Im, Re]] for every mode.
            real = np.moveaxis(np.asarray(layer.coupling), (-2, -1), (0, 1))
            arrays |= _pair(f"layers.{i}.coupling", real[:width, :width] + 1j * real[width:, :width])
        if layer.second_weight is not None:
            arrays[f"layers.{i}.first.weight"] = layer.weight[width:]
            arrays[f"layers.{i}.first.bias"] = layer.bias[width:]
            arrays[f"layers.{i}.second.weight"] = layer.second_weight
            arrays[f"layers.{i}.second.bias"] = layer.second_bias
    settings = {
        "kind": "sgno",
        "num_modes": step.config.num_modes,
        "num_blocks": step.config.num_blocks,
        "spectral": step.config.update != "pointwise",
        "coordinates": step.config.coordinates,
    }
    return Parts(settings, arrays)


@torch_parts.register
def _(step: SGNOX, grid: Grid) -> Parts:
    scheme = jax.jit(lambda step: step.scheme(grid.points))(step)
    w = scheme.w
    arrays: dict[str, Any] = {}
    for name in ("decay", "half_decay", "first", "middle", "last"):
        arrays |= _pair(name, getattr(scheme, name))
    arrays |= _pair("half_first", scheme.half)
    for name in ("K", "D", "P", "f", "T"):
        if getattr(w, name) is not None:
            arrays |= _pair(name, getattr(w, name))
    if w.r is not None:
        arrays |= {"r": w.r, "bound": sup_bound(w.r, grid.points)}
    settings = {
        "kind": "sgno-x",
        "stages": scheme.stages,
        "inner_steps": step.inner_steps(grid.points),
        "products": [list(term) for term in step.terms.products],
        "factor_channels": step.terms.channels.tolist(),
    }
    return Parts(settings, arrays)
