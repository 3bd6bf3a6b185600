"""SGNO-X beside SGNO, Linear and the paper, with what it cost."""

from sgno.report import paper
from sgno.report.groups import Comparison, Group, Row, budget_of
from sgno.report.models import LINEAR, SGNO, is_sgno_x, label
from sgno.report.statistics import ratio
from sgno.report.tables.main import task_cell
from sgno.report.tables.table import Cell, Column, Table, beside_paper, name_cell, number_cell


def sgno_x_table(comparison: Comparison) -> Table | None:
    """Every SGNO-X group there is, or None. A row of its budget is looked up for what it is compared with."""
    rows = [
        _row(row, group)
        for group in comparison.groups
        if is_sgno_x(group.model)
        for row in comparison.rows
        if row.task == group.first.task and row.budget == budget_of(group.first.train)
    ]
    if not rows:
        return None
    return Table(
        "sgno-x",
        "SGNO-X",
        "SGNO-X against SGNO and Linear on the same data and budget. Training time is that of the "
        "updates; the whole job adds data, the least-squares start, compiling and scoring. Stable step is at "
        "nRMSE 0.2. Small print: the paper's SGNO and ours / it; spread over seeds.",
        (
            Column("Task", numeric=False),
            Column("Model", numeric=False),
            Column("GMean100"),
            Column("/ SGNO"),
            Column("/ Linear"),
            Column("Stable step"),
            Column("Real numbers"),
            Column("Training, s"),
            Column("Training time / SGNO's"),
            Column("Whole job, s"),
        ),
        tuple(rows),
        names=2,
    )


def _row(row: Row, group: Group) -> tuple[Cell, ...]:
    sgno, linear = row.groups.get(SGNO), row.groups.get(LINEAR)
    score, seconds = group.score, group.train_seconds
    return (
        task_cell(row),
        name_cell(label(group.model)),
        beside_paper(score.median, paper.GMEAN100.get(row.name, {}).get(SGNO), seeds=score),
        number_cell(ratio(score.median, sgno.score.median) if sgno else None),
        number_cell(ratio(score.median, linear.score.median) if linear else None),
        beside_paper(group.stable_step.median, None, seeds=group.stable_step, whole=True),
        Cell(f"{group.first.params_real:,}", group.first.params_real),
        number_cell(seconds.median),
        number_cell(ratio(seconds.median, sgno.train_seconds.median) if sgno else None),
        number_cell(group.seconds.median),
    )
