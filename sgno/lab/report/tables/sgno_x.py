"""SGNO-X beside SGNO, Linear, the paper and the solver; what it cost, and what each of its parts is worth."""

import dataclasses
import math

from sgno.lab.report import paper
from sgno.lab.report.frontier import Frontier
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import LINEAR, SGNO, SGNO_X, SGNO_X_START
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import (
    Cell,
    Column,
    Table,
    beside_paper,
    name_cell,
    number_cell,
    number_text,
)

# With the latent carry of version 0.1, which is no longer built but has records.
ABLATION_TITLES = {
    "sgno-x-real": "Real generator",
    "sgno-x-cold": "No warm start",
    "sgno-x-onestage": "No second stage",
    "sgno-x-latent": "Latent carry",
    "sgno-x-noclosure": "No closure",
    "sgno-x-untrapped": "No trapping set",
}


def sgno_x_table(comparison: Comparison) -> Table | None:
    """SGNO-X by the row's budget and by its best recipe, or None if it was not run."""
    rows = [_row(row) for row in comparison.rows if SGNO_X in row.groups]
    if not rows:
        return None
    return Table(
        "sgno-x",
        "SGNO-X",
        "SGNO-X against SGNO and Linear on the same data and budget, and by its best recipe: the "
        "least-squares start alone, which is deterministic and takes no updates. Training time is of the "
        "updates; the whole job adds data, the start, compiling and scoring. Stable step is at nRMSE 0.2. "
        "Small print: the paper's SGNO and ours / it; spread over seeds.",
        (
            Column("Task", numeric=False),
            Column("GMean100"),
            Column("Best recipe"),
            Column("Linear"),
            Column("/ SGNO"),
            Column("Worst seed / median"),
            Column("Stable step"),
            Column("Parameters"),
            Column("Real numbers"),
            Column("Training, s"),
            Column("Training time / SGNO's"),
            Column("Whole job, s"),
            Column("Best recipe, s"),
        ),
        tuple(rows),
    )


def _row(row: Row) -> tuple[Cell, ...]:
    group, sgno = row.groups[SGNO_X], row.groups.get(SGNO)
    start, linear = row.groups.get(SGNO_X_START), row.groups.get(LINEAR)
    score, seconds = group.score, group.train_seconds
    worst = max(run.scores.gmean100 for run in group.runs)
    return (
        task_cell(row),
        beside_paper(score.median, paper.GMEAN100.get(row.name, {}).get(SGNO), seeds=score),
        number_cell(start.score.median if start else None),
        number_cell(linear.score.median if linear else None),
        number_cell(ratio(score.median, sgno.score.median) if sgno else None),
        number_cell(ratio(worst, score.median)),
        beside_paper(group.stable_step.median, None, seeds=group.stable_step, whole=True),
        Cell(f"{group.first.params:,}", group.first.params),
        Cell(f"{group.first.params_real:,}", group.first.params_real),
        number_cell(seconds.median),
        number_cell(ratio(seconds.median, sgno.train_seconds.median) if sgno else None),
        number_cell(group.seconds.median),
        number_cell(start.seconds.median if start else None),
    )


def sgno_x_ablation_table(comparison: Comparison) -> Table | None:
    """GMean100 of SGNO-X without one part, beside the whole, or None if no ablation was run."""
    rows = [row for row in comparison.rows if any(variant in row.groups for variant in ABLATION_TITLES)]
    if not rows:
        return None
    return Table(
        "sgno-x-ablation",
        "SGNO-X without its parts",
        "GMean100 of SGNO-X, and of SGNO-X without one part (medians over seeds); small print: divided by "
        "the whole's. No warm start: everything drawn at random. Latent carry: the generator acts on latent "
        "copies, as in the paper. A non-finite median is written as such.",
        (
            Column("Task", numeric=False),
            Column("SGNO-X"),
            *(Column(title) for title in ABLATION_TITLES.values()),
        ),
        tuple((task_cell(row), *(_part(row, model) for model in (SGNO_X, *ABLATION_TITLES))) for row in rows),
    )


def _part(row: Row, model: str) -> Cell:
    group, whole = row.groups.get(model), row.groups.get(SGNO_X)
    cell = number_cell(group.score.median if group else None)
    if group is None or whole is None or model == SGNO_X or not math.isfinite(group.score.median):
        return cell
    times = ratio(group.score.median, whole.score.median)
    return cell if times is None else dataclasses.replace(cell, notes=(f"×{number_text(times)}",))


def frontier_table(frontier: Frontier) -> Table:
    rows = [
        (
            name_cell("SGNO-X" if p.name == "sgno-x" else "exponax"),
            Cell(str(p.divisions), p.divisions),
            number_cell(p.gmean100),
            Cell(str(p.stable_step), p.stable_step),
            number_cell(1e3 * p.seconds),
            number_cell(1e3 * p.low),
            number_cell(1e3 * p.high),
        )
        for p in frontier.points
    ]
    return Table(
        "frontier",
        "Against the solver",
        "The solver that made the data, with fewer and fewer substeps, and SGNO-X by its best recipe, which "
        "saw the data alone: GMean100, the step up to which the mean nRMSE stays at or below 0.2 (of 100), "
        f"and milliseconds for one step of all states: median, fastest and slowest. {frontier.origin}.",
        (
            Column("Step", numeric=False),
            Column("Substeps or inner steps"),
            Column("GMean100"),
            Column("Stable step (0.2)"),
            Column("ms a step"),
            Column("Fastest"),
            Column("Slowest"),
        ),
        tuple(rows),
    )
