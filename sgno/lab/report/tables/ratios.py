"""SGNO without a part over all of it, and SGNO over a baseline in each part of the spectrum."""

import math
from collections.abc import Mapping

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import ABLATIONS, PERSISTENCE, SGNO, label
from sgno.lab.report.runs import DIAGNOSTICS
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import NOTHING, Cell, Column, Table, beside_paper, name_cell, number_cell

ABLATION_TITLES = {
    "sgno-unconstrained": "Free generator / full",
    "sgno-residual": "Residual update / full",
    "sgno-pointwise": "Pointwise update / full",
    "sgno-nocorrection": "No correction / full",
}


def ablation_ratio(row: Row, variant: str) -> float | None:
    """Variant / full; infinite if the variant is non-finite, None if either was not run."""
    if variant not in row.groups or SGNO not in row.groups:
        return None
    without, full = row.groups[variant].score.median, row.groups[SGNO].score.median
    return math.inf if math.isinf(without) else ratio(without, full)


def ablation_rows(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.rows if any(variant in row.groups for variant in ABLATIONS)]


def ablation_table(comparison: Comparison) -> Table:
    shown = ablation_rows(comparison)
    rows = [_ablation_row(row) for row in shown]
    rows += [_ablation_not_run(task) for task in paper.ABLATION if task not in {row.name for row in shown}]
    return Table(
        "ablation",
        "Ablations",
        "GMean100 of full SGNO, and of SGNO without one part divided by it (medians over seeds): above "
        "one, the part helps. Free generator: any sign. Residual update: no exponential, phi1, norm cap "
        "or budget, but the transform. Pointwise update: v + C(v) at every point, no transform at all. No "
        "correction: spectral carry and local path alone. The paper's number for its residual update is "
        "about what a pointwise network scores, which knows of no neighbour and cannot do better than "
        "persistence or one decay: it stands beside both of ours. Small print: the paper's number, and "
        "ours / paper.",
        (
            Column("Task", numeric=False),
            Column("Full SGNO"),
            *(Column(ABLATION_TITLES[variant]) for variant in ABLATIONS),
            Column("Persistence"),
        ),
        tuple(rows),
    )


def _ablation_row(row: Row) -> tuple[Cell, ...]:
    full, printed = row.groups.get(SGNO), paper.ABLATION.get(row.name, {})
    persistence = row.groups.get(PERSISTENCE)
    return (
        task_cell(row),
        beside_paper(
            full.score.median if full else None,
            paper.GMEAN100.get(row.name, {}).get(SGNO),
            seeds=full.score if full else None,
        ),
        *(beside_paper(ablation_ratio(row, variant), _printed(printed, variant)) for variant in ABLATIONS),
        number_cell(persistence.score.median if persistence else None),
    )


def _printed(printed: Mapping[str, float], variant: str) -> float | None:
    return printed.get("sgno-residual" if variant == "sgno-pointwise" else variant)


def _ablation_not_run(task: str) -> tuple[Cell, ...]:
    printed = paper.ABLATION[task]
    return (
        name_cell(task),
        beside_paper(None, paper.GMEAN100[task][SGNO]),
        *(beside_paper(None, _printed(printed, variant)) for variant in ABLATIONS),
        NOTHING,
    )


SPECTRAL_TITLES = {
    "state": "State nRMSE",
    "energy": "Spectral energy",
    "low": "Low band",
    "mid": "Mid band",
    "high": "High band",
    "phase": "Phase",
}


def spectral_ratios(row: Row, baseline: Group) -> dict[str, float | None]:
    """SGNO / baseline for every diagnostic; phase only where the paper finds it meaningful."""
    sgno = row.groups[SGNO]
    return {
        name: ratio(sgno.diagnostics[name], baseline.diagnostics[name]) if has_phase(row.name, name) else None
        for name in DIAGNOSTICS
    }


def has_phase(task: str, diagnostic: str) -> bool:
    """A pointwise phase ratio says something only where waves travel without damping or mixing."""
    printed = paper.SPECTRAL.get(task)
    return diagnostic != "phase" or (printed is not None and printed.phase is not None)


def comparators(row: Row) -> list[tuple[Group, str]]:
    """The baselines to divide by, with the reason for each; one that has two reasons appears once."""
    reasons: dict[str, list[str]] = {}
    named = paper.SPECTRAL.get(row.name)
    if named and named.baseline in row.groups:
        reasons.setdefault(named.baseline, []).append("the paper's choice")
    for group, reason in (
        (row.best(networks_only=True), "our strongest network"),
        (row.best(), "our strongest"),
    ):
        if group is not None and not (reason == "our strongest" and group.model in reasons):
            reasons.setdefault(group.model, []).append(reason)
    return [(row.groups[model], ", ".join(why)) for model, why in reasons.items()]


def spectral_table(comparison: Comparison) -> Table:
    rows = [cells for row in comparison.rows if SGNO in row.groups for cells in _spectral_rows(row)]
    shown = {row.name for row in comparison.rows if SGNO in row.groups}
    rows += [_spectral_not_run(task) for task in paper.SPECTRAL if task not in shown]
    return Table(
        "spectral",
        "Spectral diagnostics",
        "SGNO error divided by the baseline's, averaged over steps 1 to 100, median over seeds of each; "
        "below one, SGNO is better. Band errors compare the energy in the lower, middle and upper third "
        "of the frequency radius; phase is masked to modes that carry amplitude and shown where the "
        "paper shows it. Small print: the paper's ratio, and ours / paper.",
        (
            Column("Task", numeric=False),
            Column("Baseline", numeric=False),
            *(Column(SPECTRAL_TITLES[name]) for name in DIAGNOSTICS),
        ),
        tuple(rows),
        names=2,
    )


def _spectral_rows(row: Row) -> list[tuple[Cell, ...]]:
    named = paper.SPECTRAL.get(row.name)
    found = comparators(row)
    rows: list[tuple[Cell, ...]] = []
    if named and named.baseline not in row.groups:
        rows.append(
            (
                task_cell(row),
                name_cell(label(named.baseline), "the paper's choice"),
                *_spectral_missing(row.name),
            )
        )
    for group, why in found:
        printed = named if named and group.model == named.baseline else None
        ratios = spectral_ratios(row, group)
        cells = (
            beside_paper(ratios[name], getattr(printed, name, None), missing=NOTHING) for name in DIAGNOSTICS
        )
        rows.append((task_cell(row), name_cell(label(group.model), why), *cells))
    if not rows:
        rows.append((task_cell(row), name_cell("–"), *_spectral_missing(row.name)))
    return rows


def _spectral_not_run(task: str) -> tuple[Cell, ...]:
    named = paper.SPECTRAL[task]
    return (name_cell(task), name_cell(label(named.baseline), "the paper's choice"), *_spectral_missing(task))


def _spectral_missing(task: str) -> list[Cell]:
    """Not run, beside what the paper prints; nothing where a diagnostic says nothing."""
    named = paper.SPECTRAL.get(task)
    return [
        beside_paper(None, getattr(named, name, None)) if has_phase(task, name) else NOTHING
        for name in DIAGNOSTICS
    ]
