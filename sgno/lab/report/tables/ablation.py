"""What each part of SGNO is worth: the error without it over the error with it."""

import math

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import ABLATIONS, SGNO
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import Cell, Column, Table, beside_paper, name_cell

TITLES = {
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
    rows = [_row(row) for row in shown]
    rows += [_not_run(task) for task in paper.ABLATION if task not in {row.name for row in shown}]
    return Table(
        "ablation",
        "Ablations",
        "GMean100 of full SGNO, and of SGNO without one part divided by it (medians over seeds): above "
        "one, the part helps. Free generator: any sign. Residual update: no exponential, phi1, norm cap "
        "or budget. Pointwise update: v + C(v) at every point, no transform. No correction: spectral carry "
        "and local path alone. Small print: the paper's "
        "number, and ours / paper.",
        (
            Column("Task", numeric=False),
            Column("Full SGNO"),
            *(Column(TITLES[variant]) for variant in ABLATIONS),
        ),
        tuple(rows),
    )


def _row(row: Row) -> tuple[Cell, ...]:
    full, printed = row.groups.get(SGNO), paper.ABLATION.get(row.name, {})
    return (
        task_cell(row),
        beside_paper(
            full.score.median if full else None,
            paper.GMEAN100.get(row.name, {}).get(SGNO),
            seeds=full.score if full else None,
        ),
        *(beside_paper(ablation_ratio(row, variant), printed.get(variant)) for variant in ABLATIONS),
    )


def _not_run(task: str) -> tuple[Cell, ...]:
    printed = paper.ABLATION[task]
    return (
        name_cell(task),
        beside_paper(None, paper.GMEAN100[task][SGNO]),
        *(beside_paper(None, printed.get(variant)) for variant in ABLATIONS),
    )
