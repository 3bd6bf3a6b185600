"""The main table: long-horizon error of every model on every task, beside the paper's."""

import dataclasses

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import LINEAR, PERSISTENCE, SGNO, is_network_baseline, is_variant, label, order
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.table import (
    NOT_RUN,
    NOTHING,
    SMALL_PRINT,
    Cell,
    Column,
    Mark,
    Table,
    beside_paper,
    name_cell,
)
from sgno.lab.tasks import CARDS, TASKS

_ALWAYS = ("conv", "res", "unet", "dil", "fno", "cno", PERSISTENCE, LINEAR, SGNO, "sgno-matched", "sgno-x")
LINEAR_TASKS = (
    "Seven of the ten tasks (adv1d, diff1d, disp1d, mixdisp2d, diagdiff3d, unbaladv3d, advdiff3d) are exact "
    "Fourier multipliers: Linear, one least-squares fit for each mode, solves them up to rounding without a "
    "network."
)


def main_columns(comparison: Comparison) -> list[str]:
    """The models of the main table: the paper's, ours, every other baseline there is, and no ablation."""
    present = {model for row in comparison.rows for model in row.groups}
    return sorted({*_ALWAYS, *(model for model in present if not is_variant(model))}, key=order)


def main_table(comparison: Comparison) -> Table:
    """Rows are tasks, columns are models; the last two columns are SGNO over the strongest baseline."""
    models = main_columns(comparison)
    rows = [
        _row(entry, models) if isinstance(entry, Row) else _not_run(entry, models)
        for entry in comparison.entries
    ]
    return Table(
        "main",
        "Long-horizon error",
        "Median GMean100 over network seeds: the geometric mean over the first 100 steps of a "
        "closed-loop rollout of the mean nRMSE; lower is better, nothing is clipped. "
        f"{LINEAR_TASKS} Persistence forecasts that nothing changes. SGNO / best is over the strongest "
        "baseline of the row (everything outside the SGNO family), with Linear and "
        f"without it as in the paper. {SMALL_PRINT} † marks a row whose data or budget is not the "
        "paper's: its ratio to the paper does not compare like with like.",
        (
            Column("Task", numeric=False),
            Column("Updates"),
            Column("Seeds"),
            *(Column(label(model)) for model in models),
            Column("SGNO / best"),
            Column("SGNO / best network"),
        ),
        tuple(rows),
    )


def task_cell(row: Row) -> Cell:
    card = CARDS.get(row.name)
    dagger = "" if row.as_paper else " †"
    regime = (f"{card.regime}: {card.mechanism}",) if card else ()
    return name_cell(row.label + dagger, *regime, row.setting)


def _row(row: Row, models: list[str]) -> tuple[Cell, ...]:
    printed = paper.GMEAN100.get(row.name, {})
    marks = _marks(row, models)
    cells = [
        beside_paper(
            row.groups[model].score.median if model in row.groups else None,
            printed.get(model),
            seeds=row.groups[model].score if model in row.groups else None,
            mark=marks.get(model, ""),
            missing=not_run(row.dims, model) if row.as_paper else NOT_RUN,
        )
        for model in models
    ]
    return (
        task_cell(row),
        Cell(row.updates, row.budget["updates"] if row.budget else 0),
        Cell(row.seeds, max(len(group.runs) for group in row.groups.values())),
        *cells,
        _against(row, row.best(), None),
        _against(row, row.best(networks_only=True), paper.SGNO_TO_BEST.get(row.name)),
    )


def not_run(dims: int, model: str) -> Cell:
    """What was not run by the paper's budget, with the hours that one seed would take."""
    hours = paper.HOURS.get(dims, {}).get(model)
    return NOT_RUN if hours is None else dataclasses.replace(NOT_RUN, notes=(f"{hours:g} h a seed",))


def _against(row: Row, best: Group | None, printed: float | None) -> Cell:
    sgno = row.groups.get(SGNO)
    value = ratio(sgno.score.median, best.score.median) if sgno and best else None
    cell = beside_paper(value, printed)
    if value is None or best is None:
        return cell
    return Cell(cell.text, cell.value, (f"best: {label(best.model)}", *cell.notes), cell.facts)


def _marks(row: Row, models: list[str]) -> dict[str, Mark]:
    """Bold the best of the row; underline its strongest network baseline, as the paper does."""
    shown = [model for model in models if model in row.groups]
    marks: dict[str, Mark] = {}
    second = min(
        (model for model in shown if is_network_baseline(model)),
        key=lambda model: row.groups[model].score.median,
        default=None,
    )
    if second:
        marks[second] = "second"
    best = min(shown, key=lambda model: row.groups[model].score.median, default=None)
    if best and row.groups[best].score.median < float("inf"):
        marks[best] = "best"
    return marks


def _not_run(task: str, models: list[str]) -> tuple[Cell, ...]:
    card, printed = CARDS[task], paper.GMEAN100.get(task, {})
    dims = TASKS[task].num_spatial_dims
    return (
        name_cell(task, f"{card.regime}: {card.mechanism}", f"{dims}D"),
        NOTHING,
        NOTHING,
        *(beside_paper(None, printed.get(model)) for model in models),
        NOT_RUN,
        beside_paper(None, paper.SGNO_TO_BEST.get(task)),
    )
