"""What each part of SGNO is worth: the error without it over the error with it."""

import math
from collections.abc import Mapping

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import ABLATIONS, PERSISTENCE, SGNO
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import NOTHING, Cell, Column, Table, beside_paper, name_cell, number_cell

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
        "or budget, but the transform. Pointwise update: v + C(v) at every point, no transform at all. No "
        "correction: spectral carry and local path alone. The paper's number for its residual update is "
        "about what a pointwise network scores, which knows of no neighbour and cannot do better than "
        "persistence or one decay: it stands beside both of ours. Small print: the paper's number, and "
        "ours / paper.",
        (
            Column("Task", numeric=False),
            Column("Full SGNO"),
            *(Column(TITLES[variant]) for variant in ABLATIONS),
            Column("Persistence"),
        ),
        tuple(rows),
    )


def _row(row: Row) -> tuple[Cell, ...]:
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


def _not_run(task: str) -> tuple[Cell, ...]:
    printed = paper.ABLATION[task]
    return (
        name_cell(task),
        beside_paper(None, paper.GMEAN100[task][SGNO]),
        *(beside_paper(None, _printed(printed, variant)) for variant in ABLATIONS),
        NOTHING,
    )
