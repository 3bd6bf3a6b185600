"""The numbers behind the page's pictures, as plain JSON. Only what is shown is read."""

import base64
import json
import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from sgno.errors import InputError
from sgno.io.files import finite
from sgno.lab.compact import ERROR_FLOOR, ERROR_TOP
from sgno.lab.report.fields import (
    HIGH_QUALITY,
    LOW_QUALITY,
    Frames,
    load_prediction,
    load_truth,
    prediction_picture,
    truth_picture,
)
from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import ABLATIONS, SGNO, is_sgno_x, is_variant, label, look, order
from sgno.lab.report.runs import DIAGNOSTICS
from sgno.lab.report.tables.ratios import (
    SPECTRAL_TITLES,
    ablation_ratio,
    ablation_rows,
    comparators,
    spectral_ratios,
)
from sgno.lab.store import Store

MOST_ROWS = 40
"""Rows with interactive pictures. Tables show all."""

SPECTRUM_EVERY = 10
"""Jobs store the spectrum of steps 1, 11, 21, ..."""

PICTURE_BYTES = 1_200_000
"""Room for films in the page; what does not fit is left out and said so."""

_MOST_STEPS = 200
_FEW = 12
_MOST_FRAMES = 201


def page_data(comparison: Comparison, store: Store) -> dict[str, Any]:
    """Everything the page's script draws."""
    rows = comparison.rows[:MOST_ROWS]
    models = sorted({model for row in rows for model in row.groups}, key=order)
    samples, notes = _samples(rows, store)
    return {
        "models": {model: {**look(model)._asdict(), "variant": is_variant(model)} for model in models},
        "rows": _rows(rows, store, notes),
        "samples": samples,
        "errorScale": {"floor": ERROR_FLOOR, "top": ERROR_TOP},
        "diagnostics": SPECTRAL_TITLES,
        "ratios": [_ratios(row) for row in rows if SGNO in row.groups and comparators(row)],
        "ablation": [_ablation(row) for row in ablation_rows(comparison)[:MOST_ROWS]],
        "notes": notes
        + (
            [f"{len(comparison.rows) - MOST_ROWS} rows are in the tables only."]
            if len(comparison.rows) > MOST_ROWS
            else []
        ),
    }


def packed(data: Any) -> str:
    """JSON, deflated, in base64: numbers of curves become a third."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def short(x: float) -> float | None:
    """Four significant digits, or None for what is not finite."""
    return finite(float(f"{x:.4g}"))


def _rows(rows: Iterable[Row], store: Store, notes: list[str]) -> list[dict[str, Any]]:
    spectra = _Spectra(store, notes)
    return [_row(row, spectra) for row in rows]


def _row(row: Row, spectra: "_Spectra") -> dict[str, Any]:
    steps = max(len(group.curve.median) for group in row.groups.values())
    shown = range(0, steps, -(-steps // _MOST_STEPS))
    return {
        "id": row.id,
        "title": row.title,
        "name": row.name,
        "steps": [step + 1 for step in shown],
        "curves": {model: _curve(group, shown) for model, group in row.groups.items()},
        "spectra": spectra.of(row),
        "cost": {
            model: [short(group.train_seconds.median), short(group.score.median), group.first.params_real]
            for model, group in row.groups.items()
        },
    }


def _curve(group: Group, shown: range) -> dict[str, Any]:
    names = ("median", "lower", "upper") if len(group.runs) > 1 else ("median",)
    values = {name: getattr(group.curve, name) for name in names}
    return {
        "n": len(group.runs),
        **{name: [short(v[i]) if i < len(v) else None for i in shown] for name, v in values.items()},
    }


class _Spectra:
    """Energy per shell over time, in hundredths of a decade, of each model's first seed and the reference."""

    def __init__(self, store: Store, notes: list[str]):
        self.store, self.notes = store, notes
        # A thinned store has the reference of each data set once.
        self.references: dict[str, np.ndarray] = {}

    def of(self, row: Row) -> dict[str, Any]:
        found: dict[str, np.ndarray] = {}
        for model, group in row.groups.items():
            run = group.first
            try:
                arrays = self.store.curves(run.id).arrays
                if "reference_spectrum" in arrays:
                    self.references.setdefault(run.data, arrays["reference_spectrum"])
                if arrays["spectrum"].ndim != 2 or not 0 < arrays["spectrum"].size <= 1_000_000:
                    raise InputError(f"{run.id}: spectra of shape {arrays['spectrum'].shape}")
                found[model] = arrays["spectrum"]
            except (InputError, KeyError, OSError) as error:
                self.notes.append(f"{row.title}, {label(model)}: no spectra ({error}).")
        data = next(iter(row.groups.values())).first.data
        reference = self.references.get(data, np.zeros((0, 0)))
        fitting = {model: s for model, s in found.items() if s.shape == reference.shape}
        if not fitting:
            return {}
        return {
            "steps": [1 + SPECTRUM_EVERY * i for i in range(len(reference))],
            "reference": _decades(reference),
            "models": {model: _decades(spectrum) for model, spectrum in fitting.items()},
        }


def _decades(spectrum: np.ndarray) -> list[list[int | None]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = 100 * np.log10(spectrum.astype(np.float64))
    return [[round(x) if math.isfinite(x) else None for x in line] for line in logs.tolist()]


def _samples(rows: Iterable[Row], store: Store) -> tuple[list[dict[str, Any]], list[str]]:
    """One trajectory a task and model, first seed, until the room is used up; telling models first."""
    notes: list[str] = []
    truths: dict[str, tuple[dict[str, Any], Frames]] = {}
    rows = tuple(rows)
    quality = HIGH_QUALITY if sum(len(row.groups) for row in rows) <= _FEW else LOW_QUALITY
    wanted = [(rank, row, model) for row in rows for rank, model in enumerate(_telling_first(row))]
    used = left_out = 0
    for _, row, model in sorted(wanted, key=lambda item: item[0]):
        run = row.groups[model].first
        if used > PICTURE_BYTES:
            left_out += 1
            continue
        try:
            if row.id not in truths:
                truths[row.id] = _truth_entry(row, load_truth(store, run), quality)
                used += len(truths[row.id][0]["truth"])
            entry, truth = truths[row.id]
            prediction = load_prediction(store, run).shifted(entry["center"], truth.every // entry["stride"])
            picture = prediction_picture(truth, prediction, quality)
        except (InputError, OSError) as error:
            notes.append(f"{row.title}, {label(model)}: no film ({error}).")
            continue
        used += len(picture["image"])
        entry["predictions"][model] = {"seed": run.seed, **picture}
    if left_out:
        notes.append(f"{left_out} films are left out to keep the page small; the store has them.")
    entries = (truths[row.id][0] for row in rows if row.id in truths)
    shown = [entry for entry in entries if entry["predictions"]]
    for entry in shown:
        entry["predictions"] = dict(sorted(entry["predictions"].items(), key=lambda item: order(item[0])))
    return shown, notes


def _telling_first(row: Row) -> list[str]:
    """SGNO, the strongest network, SGNO-X, then the rest by score; ablations last."""
    best = row.best(networks_only=True)

    def rank(model: str) -> tuple:
        first = [SGNO, best.model if best else "", "sgno-x"]
        place = first.index(model) if model in first else len(first)
        return (
            place,
            model in ABLATIONS or (is_sgno_x(model) and place == len(first)),
            row.groups[model].score.median,
        )

    return sorted(row.groups, key=rank)


def _truth_entry(row: Row, frames: Frames, quality: int) -> tuple[dict[str, Any], Frames]:
    center = frames.center
    truth = frames.shifted(center, -(-len(frames.values) // _MOST_FRAMES))
    telling = _telling_first(row)
    entry = {
        "row": row.id,
        "first": telling[0],
        "rival": telling[1] if len(telling) > 1 else None,
        "title": row.title,
        "dims": row.dims,
        "shape": list(truth.values.shape),
        "every": truth.every,
        "stride": frames.every,
        "amplitude": short(truth.amplitude),
        "center": short(center),
        "truth": truth_picture(truth, max(quality, 88)),
        "predictions": {},
    }
    return entry, truth


def _ratios(row: Row) -> dict[str, Any]:
    return {
        "title": row.title,
        "name": row.label,
        "against": [
            {"model": group.model, "why": why, "ratios": _shown(spectral_ratios(row, group))}
            for group, why in comparators(row)
        ],
    }


def _shown(ratios: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if ratios[name] is None else short(ratios[name] or 0.0) for name in DIAGNOSTICS}


def _ablation(row: Row) -> dict[str, Any]:
    ratios = {variant: ablation_ratio(row, variant) for variant in ABLATIONS}
    return {
        "title": row.title,
        "name": row.label,
        "ratios": {variant: short(value) for variant, value in ratios.items() if value is not None},
        "nonfinite": [
            variant for variant, value in ratios.items() if value is not None and math.isinf(value)
        ],
    }
