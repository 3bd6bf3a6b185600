"""The same weights on finer grids: resolution transfer."""

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row, grid_text
from sgno.lab.report.models import SGNO, label
from sgno.lab.report.statistics import Spread, ratio
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import Cell, Column, Table, beside_paper, name_cell

_TASK, _TRAINED_AT = "kolm2d", 64


def transfer_table(comparison: Comparison) -> Table:
    rows = [
        cells
        for row in comparison.rows
        for group in row.groups.values()
        if group.transfer
        for cells in _rows(row, group)
    ]
    if not any(
        group.transfer for row in comparison.rows if row.name == _TASK for group in row.groups.values()
    ):
        rows += [_not_run(points) for points in paper.TRANSFER]
    return Table(
        "transfer",
        "Resolution transfer",
        "Trained on one grid, rolled out on others without retraining. Median GMean100 over seeds, its "
        "ratio to the training grid, and the step up to which the mean nRMSE stays at or below 0.2. "
        "Small print: the paper's number, ours / paper, spread over seeds.",
        (
            Column("Task", numeric=False),
            Column("Model", numeric=False),
            Column("Evaluated at", numeric=False),
            Column("GMean100"),
            Column("Ratio to training grid"),
            Column("Stable step (0.2)"),
        ),
        tuple(rows),
        names=3,
    )


def _rows(row: Row, group: Group) -> list[tuple[Cell, ...]]:
    scores = {row.points: (group.score, group.stable_step), **group.transfer}
    return [_row(row, group, points, *scores[points]) for points in sorted(scores)]


def _row(row: Row, group: Group, points: int, score: Spread, stable: Spread) -> tuple[Cell, ...]:
    papers = (row.name, row.points, group.model) == (_TASK, _TRAINED_AT, SGNO)
    printed = paper.TRANSFER.get(points) if papers else None
    return (
        task_cell(row),
        name_cell(label(group.model)),
        Cell(grid_text(points, row.dims), points, mark="name"),
        beside_paper(score.median, printed and printed.gmean100, seeds=score),
        beside_paper(ratio(score.median, group.score.median), printed and printed.ratio),
        beside_paper(stable.median, printed and printed.stable_step, seeds=stable, whole=True),
    )


def _not_run(points: int) -> tuple[Cell, ...]:
    printed = paper.TRANSFER[points]
    return (
        name_cell(_TASK),
        name_cell(label(SGNO)),
        Cell(grid_text(points, 2), points, mark="name"),
        *(beside_paper(None, value) for value in printed),
    )
