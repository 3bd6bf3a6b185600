"""The numbers behind the page's pictures, as plain JSON. Only what is shown is read."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from sgno.errors import InputError
from sgno.io.files import finite
from sgno.lab.report.fields import (
    ERROR_FLOOR,
    ERROR_TOP,
    Frames,
    error_codes,
    field_codes,
    load_prediction,
    load_truth,
    pack,
)
from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import ABLATIONS, SGNO, is_sgno_x, is_variant, label, look, order
from sgno.lab.report.runs import DIAGNOSTICS
from sgno.lab.report.tables.ablation import ablation_ratio, ablation_rows
from sgno.lab.report.tables.spectral import TITLES, comparators, spectral_ratios
from sgno.lab.store import Store

MOST_ROWS = 40
"""Rows with interactive pictures. Tables show all."""

SPECTRUM_EVERY = 10
"""Jobs store the spectrum of steps 1, 11, 21, ..."""

SAMPLE_BYTES = 6_000_000
"""Room for animated samples in the page; what does not fit is left out and said so."""


def page_data(comparison: Comparison, store: Store) -> dict[str, Any]:
    """Everything the page's script draws."""
    rows = comparison.rows[:MOST_ROWS]
    models = sorted({model for row in rows for model in row.groups}, key=order)
    samples, notes = _samples(rows, store)
    return {
        "models": {model: {**look(model)._asdict(), "variant": is_variant(model)} for model in models},
        "rows": [_row(row, store, notes) for row in rows],
        "samples": samples,
        "errorScale": {"floor": ERROR_FLOOR, "top": ERROR_TOP},
        "diagnostics": TITLES,
        "ratios": [_ratios(row) for row in rows if SGNO in row.groups and comparators(row)],
        "ablation": [_ablation(row) for row in ablation_rows(comparison)[:MOST_ROWS]],
        "notes": notes
        + (
            [f"{len(comparison.rows) - MOST_ROWS} rows are in the tables only."]
            if len(comparison.rows) > MOST_ROWS
            else []
        ),
    }


def short(x: float) -> float | None:
    """Four significant digits, or None for what is not finite."""
    return finite(float(f"{x:.4g}"))


def _row(row: Row, store: Store, notes: list[str]) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "name": row.name,
        "curves": {model: _curve(group) for model, group in row.groups.items()},
        "spectra": _spectra(row, store, notes),
        "cost": {
            model: [short(group.train_seconds.median), short(group.score.median), group.first.params_real]
            for model, group in row.groups.items()
        },
    }


def _curve(group: Group) -> dict[str, Any]:
    curve: dict[str, Any] = {"n": len(group.runs), "median": _numbers(group.curve.median)}
    if len(group.runs) > 1:
        curve |= {"lower": _numbers(group.curve.lower), "upper": _numbers(group.curve.upper)}
    return curve


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [short(x) for x in values]


def _spectra(row: Row, store: Store, notes: list[str]) -> dict[str, Any]:
    """Energy per shell over time, in hundredths of a decade, of each model's first seed and the reference."""
    found: dict[str, Any] = {}
    for model, group in row.groups.items():
        run = group.first
        try:
            arrays = store.curves(run.id).arrays
            spectrum, reference = arrays["spectrum"], arrays["reference_spectrum"]
            if spectrum.ndim != 2 or spectrum.shape != reference.shape or spectrum.size > 1_000_000:
                raise InputError(
                    f"{run.id}: spectra of shape {spectrum.shape} and {reference.shape} do not fit."
                )
        except (InputError, KeyError, OSError) as error:
            notes.append(f"{row.title}, {label(model)}: no spectra ({error}).")
            continue
        found.setdefault("steps", [1 + SPECTRUM_EVERY * i for i in range(len(spectrum))])
        found.setdefault("reference", _decades(reference))
        if len(spectrum) == len(found["steps"]):
            found.setdefault("models", {})[model] = _decades(spectrum)
    return found


def _decades(spectrum: np.ndarray) -> list[list[int | None]]:
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = 100 * np.log10(spectrum.astype(np.float64))
    return [[round(x) if math.isfinite(x) else None for x in line] for line in logs.tolist()]


def _samples(rows: Iterable[Row], store: Store) -> tuple[list[dict[str, Any]], list[str]]:
    """One trajectory a task and model, first seed, until the room is used up; telling models first."""
    notes: list[str] = []
    truths: dict[str, tuple[dict[str, Any], Frames]] = {}
    wanted = [(rank, row, model) for row in rows for rank, model in enumerate(_telling_first(row))]
    used = left_out = 0
    for _, row, model in sorted(wanted, key=lambda item: item[0]):
        run = row.groups[model].first
        if used > SAMPLE_BYTES:
            left_out += 1
            continue
        try:
            if row.id not in truths:
                frames = load_truth(store, run)
                entry = _truth_entry(row, frames)
                truths[row.id] = entry, frames
                used += len(entry["truth"])
            entry, frames = truths[row.id]
            packed = _packed(frames, load_prediction(store, run))
        except (InputError, OSError) as error:
            notes.append(f"{row.title}, {label(model)}: no sample to show ({error}).")
            continue
        used += sum(len(text) for text in packed.values())
        entry["predictions"][model] = {"seed": run.seed, **packed}
    if left_out:
        notes.append(f"{left_out} samples are left out to keep the page small; the store has them.")
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


def _truth_entry(row: Row, frames: Frames) -> dict[str, Any]:
    amplitude, rival = frames.amplitude, row.best(networks_only=True) or row.best()
    return {
        "row": row.id,
        "rival": rival.model if rival else None,
        "title": row.title,
        "dims": row.dims,
        "shape": list(frames.values.shape),
        "every": frames.every,
        "amplitude": short(amplitude),
        "truth": pack(field_codes(frames.values, amplitude)),
        "predictions": {},
    }


def _packed(truth: Frames, prediction: Frames) -> dict[str, str]:
    if prediction.values.shape != truth.values.shape:
        raise InputError(
            f"prediction and truth have shapes {prediction.values.shape} and {truth.values.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        errors = prediction.values - truth.values
    return {
        "field": pack(field_codes(prediction.values, truth.amplitude)),
        "error": pack(error_codes(errors, truth.amplitude)),
    }


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
