"""Stores whose every number is known, written without training anything."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sgno.io.files import save_arrays, seal
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import parse_run
from sgno.lab.report.tables import all_tables
from sgno.lab.tasks import TASKS

STEPS = 200
_SAMPLE_POINTS = {1: (80,), 2: (32, 32), 3: (3, 16, 16)}
_FRAMES = {1: 201, 2: 41, 3: 41}


def record(
    task: str = "ks1d",
    model: str = "sgno",
    seed: int = 0,
    *,
    gmean100: float | None = 0.1,
    updates: int = 10_000,
    config: Mapping[str, Any] | None = None,
    diagnostics: Mapping[str, float | None] | None = None,
    transfer: Mapping[str, float] | None = None,
    task_settings: Mapping[str, Any] | None = None,
    train_seconds: float = 60.0,
    mean_nrmse: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """A record as a job writes it, with a constant error curve."""
    scores = {
        "gmean100": gmean100,
        "stable_step": 100,
        "nonfinite_steps": 0 if gmean100 is not None else 150,
        "mean_nrmse": list(mean_nrmse or [gmean100] * STEPS),
        "diagnostics": {
            **dict.fromkeys(("state", "energy", "low", "mid", "high", "phase"), gmean100),
            **(diagnostics or {}),
        },
    }
    known = TASKS[task].to_json() if task in TASKS else {**TASKS["ks1d"].to_json(), "name": task}
    return {
        "id": "unused",
        "job": {
            "task": {**known, **(task_settings or {})},
            "model_name": model,
            "model": dict(config or {"kind": model}),
            "train": {
                "updates": 0 if model == "linear" else updates,
                "batch_size": 20,
                "peak_rate": 1e-3,
                "warmup": 2_000,
                "optimizer": "adam",
                "loss": "mse",
                "unroll": 1,
                "pushforward": False,
                "noise": 0.0,
                "precision": "float32",
            },
            "seed": seed,
            "transfer_points": [int(n) for n in transfer or {}],
        },
        "data": f"data{known['num_spatial_dims']}d",
        "params": 30_573,
        "params_real": 52_595,
        **scores,
        "transfer": {n: {"data": "x", **scores, "gmean100": value} for n, value in (transfer or {}).items()},
        "diverged_at": None,
        "final_loss": 1e-6,
        "seconds_per_update": 0.0093,
        "train_seconds": train_seconds,
        "seconds": train_seconds + 5,
        "versions": {"python": "3.11.7", "sgno": "0.1.0", "jax": "0.10.2"},
        "machine": {"system": "Linux x86_64", "processor": "AMD EPYC", "cores": 2, "devices": ["cpu"]},
        "finished": "2026-11-15T20:31:14+00:00",
    }


def fill_store(root: Path, records: list[dict[str, Any]], *, pictures: bool = True) -> Path:
    """Write records, and beside each the same curves and samples; hard links keep thousands cheap."""
    shared = root / "shared"
    if pictures:
        for dims in {r["job"]["task"]["num_spatial_dims"] for r in records}:
            _write_pictures(root, shared, dims)
    for i, content in enumerate(records):
        folder = root / "jobs" / f"{i:016x}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(seal(content)))
        if pictures:
            for name in ("curves", "sample"):
                os.link(
                    shared / f"{name}{content['job']['task']['num_spatial_dims']}.safetensors",
                    folder / f"{name}.safetensors",
                )
    return root


def _write_pictures(root: Path, shared: Path, dims: int) -> None:
    times = np.arange(_FRAMES[dims]).reshape(-1, 1, *(1,) * len(_SAMPLE_POINTS[dims]))
    x = np.linspace(0, 2 * np.pi, _SAMPLE_POINTS[dims][-1], endpoint=False)
    shape = (_FRAMES[dims], 1, *_SAMPLE_POINTS[dims])
    truth = np.broadcast_to(np.sin(x + 0.1 * times), shape)
    prediction = truth + 0.02 * times / len(times) * np.cos(3 * x)
    prediction = np.where(times > 0.9 * len(times), np.nan, prediction)
    save_arrays(root / "truth" / f"data{dims}d.safetensors", {}, {"states": truth.astype(np.float16)})
    save_arrays(shared / f"sample{dims}.safetensors", {}, {"states": prediction.astype(np.float16)})
    decay = np.exp(-0.4 * np.arange(41))[None] * np.ones((20, 1))
    growth = 1 + np.arange(20)[:, None] / 5
    curves = {"spectrum": (decay * growth).astype(np.float32), "reference_spectrum": decay.astype(np.float32)}
    save_arrays(shared / f"curves{dims}.safetensors", {}, curves)


def comparison(*records):
    """Records as the report compares them."""
    return compare(parse_run(r, f"{i:04x}") for i, r in enumerate(records))


def table(records, table_id):
    """One table of the report of these records."""
    return next(t for t in all_tables(comparison(*records)) if t.id == table_id)


def cells(found, first):
    """Heading -> cell of the first row whose name begins so."""
    row = next(row for row in found.rows if row[0].text.startswith(first))
    return {column.title: cell for column, cell in zip(found.columns, row, strict=True)}


# Seven runs of one task: three seeds of SGNO and four others, one of them without a finite score.
KS = [
    *(record(seed=s, gmean100=g) for s, g in enumerate((0.02, 0.03, 0.07))),
    record(model="dil", gmean100=0.2),
    record(model="fno", gmean100=0.5),
    record(model="linear", gmean100=0.1),
    record(model="conv", gmean100=None),
]
# A name that every format must keep as text.
HOSTILE = "</script><script>alert(1)</script>|`[x](javascript:1)` \\input{a} & 50% $x$ _y_ {"
