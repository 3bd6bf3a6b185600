"""Spectral diagnostics as ratios SGNO / baseline: the paper's named baseline, and our strongest."""

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import SGNO, label
from sgno.lab.report.runs import DIAGNOSTICS
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import NOTHING, Cell, Column, Table, beside_paper, name_cell

TITLES = {
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
    rows = [cells for row in comparison.rows if SGNO in row.groups for cells in _rows(row)]
    shown = {row.name for row in comparison.rows if SGNO in row.groups}
    rows += [_not_run(task) for task in paper.SPECTRAL if task not in shown]
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
            *(Column(TITLES[name]) for name in DIAGNOSTICS),
        ),
        tuple(rows),
        names=2,
    )


def _rows(row: Row) -> list[tuple[Cell, ...]]:
    named = paper.SPECTRAL.get(row.name)
    found = comparators(row)
    rows: list[tuple[Cell, ...]] = []
    if named and named.baseline not in row.groups:
        rows.append(
            (task_cell(row), name_cell(label(named.baseline), "the paper's choice"), *_missing(row.name))
        )
    for group, why in found:
        printed = named if named and group.model == named.baseline else None
        ratios = spectral_ratios(row, group)
        cells = (
            beside_paper(ratios[name], getattr(printed, name, None), missing=NOTHING) for name in DIAGNOSTICS
        )
        rows.append((task_cell(row), name_cell(label(group.model), why), *cells))
    if not rows:
        rows.append((task_cell(row), name_cell("–"), *_missing(row.name)))
    return rows


def _not_run(task: str) -> tuple[Cell, ...]:
    named = paper.SPECTRAL[task]
    return (name_cell(task), name_cell(label(named.baseline), "the paper's choice"), *_missing(task))


def _missing(task: str) -> list[Cell]:
    """Not run, beside what the paper prints; nothing where a diagnostic says nothing."""
    named = paper.SPECTRAL.get(task)
    return [
        beside_paper(None, getattr(named, name, None)) if has_phase(task, name) else NOTHING
        for name in DIAGNOSTICS
    ]
