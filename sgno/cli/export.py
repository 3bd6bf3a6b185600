"""`sgno export`"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import emit_json, say
from sgno.errors import InputError

# Agreement that is promised, relative to the largest value of the state.
TOLERANCE = 1e-5


class Target(StrEnum):
    """What a step can be exported to."""

    onnx = "onnx"
    stablehlo = "stablehlo"
    torch = "torch"


def export(
    weights: options.Weights,
    to: Annotated[
        Target,
        typer.Option(help="ONNX or StableHLO (any model), or a PyTorch module (SGNO, SGNO-X, linear)."),
    ],
    out: Annotated[
        Path, typer.Option(help="File to write for onnx and stablehlo, folder to write for torch.")
    ],
    force: options.Force = False,
    check: Annotated[bool, typer.Option(help="Run the export once and compare it with the model.")] = True,
    json: options.Json = False,
):
    """Export a trained model for use without this package.

    onnx: one file for ONNX Runtime on any platform: InferenceSession(file).run(None, {"u": u}).
    stablehlo: one file with program and weights, for any batch: jax.export.deserialize(bytes).call(u).
    torch: a folder with step.py, settings.json and weights.npz, which needs torch and numpy only:
    from step import load; u_next = load()(u).
    """
    options.check_writable(out)
    from sgno.lab.zoo import find, load
    from sgno.weights import read_provenance

    step = load(weights)
    if out.exists():
        if not force:
            raise InputError(f"{out} exists already. Choose another name, or add --force to replace it.")
        _check_replaceable(out, to)
    origin = {"weights": weights, **read_provenance(find(weights))}
    if to is Target.onnx:
        from sgno.export.onnx import export_onnx

        export_onnx(out, step, step.grid, metadata=origin)
        difference = _onnx_difference(out, step) if check else None
    elif to is Target.stablehlo:
        from sgno.export import export_stablehlo

        export_stablehlo(out, step, step.grid)
        difference = _stablehlo_difference(out, step) if check else None
    else:
        from sgno.export import export_torch

        export_torch(out, step, step.grid, origin, replace=force)
        difference = _torch_difference(out, step) if check else None
    summary = {
        "weights": weights,
        "to": to.value,
        "out": str(out),
        "bytes": sum(f.stat().st_size for f in ([out] if out.is_file() else out.iterdir()) if f.is_file()),
        "state": list(step.grid.shape),
        "largest_difference": difference,
    }
    say(f"Wrote {out} ({summary['bytes'] / 1000:,.0f} kB).")
    _say(difference, check)
    if json:
        emit_json(summary)


def _check_replaceable(out: Path, to: Target) -> None:
    """Only what an export could have written is replaced, and only once the new one is whole."""
    folder = (out / "settings.json").is_file() and (out / "step.py").is_file()
    if not (folder if to is Target.torch else out.is_file()):
        raise InputError(f"{out} was not written by an export to {to.value}. Choose another name.")


def _states(grid) -> Any:
    """Two smooth states of size one, to compare on."""
    import numpy as np

    from sgno.spectral import to_modes, to_points, wavenumber_norm

    noise = to_modes(np.random.default_rng(0).normal(size=(2, *grid.shape)), grid.points)
    u = to_points(noise * np.exp(-(wavenumber_norm(grid.points) ** 2) / 20), grid.points)
    return (u / np.abs(u).max()).astype(np.float32)


def _difference(found, step, u) -> float:
    import equinox as eqx
    import numpy as np

    from sgno.step import batch, prepare

    expected = np.asarray(eqx.filter_jit(lambda step, u: batch(prepare(step), u))(step, u))
    return float(np.abs(np.asarray(found) - expected).max() / max(np.abs(expected).max(), 1e-30))


def _onnx_difference(out: Path, step) -> float | None:
    from importlib.util import find_spec

    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    u = _states(step.grid)
    return _difference(onnxruntime.InferenceSession(out).run(None, {"u": u})[0], step, u)


def _stablehlo_difference(out: Path, step) -> float:
    import jax.export

    u = _states(step.grid)
    found = jax.export.deserialize(bytearray(out.read_bytes())).call(u)
    return _difference(found, step, u)


def _torch_difference(out: Path, step) -> float | None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return None
    import torch

    from sgno.export.torch_step import load

    u = _states(step.grid)
    with torch.no_grad():
        found = load(out)(torch.from_numpy(u)).numpy()
    return _difference(found, step, u)


def _say(difference: float | None, check: bool) -> None:
    if difference is not None:
        fits = difference <= TOLERANCE
        text = f"It agrees with the model to {difference:.1e} of the largest value."
        say(text if fits else f"{text} At most {TOLERANCE:g} was expected.", style=None if fits else "yellow")
    elif check:
        say("It was not compared with the model: what would run it is not installed here.")
