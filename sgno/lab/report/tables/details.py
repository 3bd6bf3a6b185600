"""How large each model is, what it cost, how it does on finer grids, and when its rollouts first drifted."""

import math
from collections.abc import Mapping
from typing import Any

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row, grid_text
from sgno.lab.report.models import SGNO, label, order
from sgno.lab.report.runs import FAULTS, Fault
from sgno.lab.report.statistics import Spread, ratio, spread
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import NOT_RUN, Cell, Column, Table, beside_paper, name_cell, number_cell


def capacity_table(comparison: Comparison) -> Table:
    """One row a model and dimension. A complex number is one parameter and two real numbers."""
    sizes: dict[tuple[str, int, int], Group] = {}
    for row in comparison.rows:
        for model, group in row.groups.items():
            sizes.setdefault((model, row.dims, group.first.params_real), group)
    missing = {
        (model, dims)
        for model, counts in paper.CAPACITY.items()
        for dims, count in enumerate(counts, start=1)
        if count is not None and not any(key[:2] == (model, dims) for key in sizes)
    }
    entries = [
        *((model, dims, group) for (model, dims, _), group in sizes.items()),
        *((m, d, None) for m, d in missing),
    ]
    entries.sort(key=lambda entry: (order(entry[0]), entry[1], entry[2].first.params if entry[2] else 0))
    return Table(
        "capacity",
        "Capacity",
        "Trainable parameters. The first count takes a complex number once, as the paper does for SGNO; "
        "the second counts real numbers, which is how all baselines are counted. Counts of Linear and "
        "SGNO-X depend on the grid and the data.",
        (
            Column("Model", numeric=False),
            Column("Dimension"),
            Column("Parameters"),
            Column("Real numbers"),
            Column("Paper's count"),
            Column("Settings", numeric=False),
        ),
        tuple(_capacity_row(*entry) for entry in entries),
        names=2,
    )


def _capacity_row(model: str, dims: int, group: Group | None) -> tuple[Cell, ...]:
    printed = paper.CAPACITY.get(model, (None,) * 3)[dims - 1]
    papers = Cell(f"{printed:,}", printed, facts={"paper": printed}) if printed else Cell("–", mark="missing")
    head = (name_cell(label(model)), Cell(f"{dims}D", dims, mark="name"))
    if group is None:
        return (*head, NOT_RUN, NOT_RUN, papers, NOT_RUN)
    run = group.first
    return (
        *head,
        Cell(f"{run.params:,}", run.params),
        Cell(f"{run.params_real:,}", run.params_real),
        papers,
        Cell(settings_text(run.config)),
    )


def settings_text(config: Mapping[str, Any]) -> str:
    """`name=value` of every setting but the kind, cut to a readable length."""
    text = ", ".join(f"{name}={value}" for name, value in config.items() if name != "kind")
    return text if len(text) <= 200 else text[:199] + "…"


def timing_table(comparison: Comparison) -> Table:
    rows = []
    for row in comparison.rows:
        for group in row.groups.values():
            speed = group.seconds_per_update
            rows.append(
                (
                    task_cell(row),
                    name_cell(label(group.model)),
                    number_cell(None if speed is None else 1e3 * speed),
                    number_cell(group.train_seconds.median),
                    Cell(str(len(group.runs)), len(group.runs)),
                    Cell(machine_text(group.first.machine)),
                )
            )
    return Table(
        "timing",
        "Time",
        "Milliseconds an update (batch as in the row's setting) and seconds of training, medians over "
        "seeds. Jobs may have shared the machine with others, so these are what was paid, not a "
        "benchmark.",
        (
            Column("Task", numeric=False),
            Column("Model", numeric=False),
            Column("ms / update"),
            Column("Training, s"),
            Column("Seeds"),
            Column("Machine", numeric=False),
        ),
        tuple(rows),
        names=2,
    )


def machine_text(machine: Mapping[str, Any]) -> str:
    """Processor, cores and devices in one line."""
    words = [str(machine.get("processor", "unknown processor"))]
    if machine.get("cores") is not None:
        words.append(f"{machine['cores']} core{'' if machine['cores'] == 1 else 's'}")
    devices = machine.get("devices")
    if isinstance(devices, list) and devices:
        words.append("/".join(sorted({str(device) for device in devices})))
    return ", ".join(words)[:200]


_TASK, _TRAINED_AT = "kolm2d", 64


def transfer_table(comparison: Comparison) -> Table:
    rows = [
        cells
        for row in comparison.rows
        for group in row.groups.values()
        if group.transfer
        for cells in _transfer_rows(row, group)
    ]
    if not any(
        group.transfer for row in comparison.rows if row.name == _TASK for group in row.groups.values()
    ):
        rows += [_transfer_not_run(points) for points in paper.TRANSFER]
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


def _transfer_rows(row: Row, group: Group) -> list[tuple[Cell, ...]]:
    scores = {row.points: (group.score, group.stable_step), **group.transfer}
    return [_transfer_row(row, group, points, *scores[points]) for points in sorted(scores)]


def _transfer_row(row: Row, group: Group, points: int, score: Spread, stable: Spread) -> tuple[Cell, ...]:
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


def _transfer_not_run(points: int) -> tuple[Cell, ...]:
    printed = paper.TRANSFER[points]
    return (
        name_cell(_TASK),
        name_cell(label(SGNO)),
        Cell(grid_text(points, 2), points, mark="name"),
        *(beside_paper(None, value) for value in printed),
    )


def drift_table(comparison: Comparison) -> Table | None:
    """Every group whose rollouts were watched, or None if there is none: older stores have no monitor."""
    rows = [
        _drift_row(row, group)
        for row in comparison.rows
        for group in row.groups.values()
        if any(run.monitor is not None for run in group.runs)
    ]
    if not rows:
        return None
    return Table(
        "drift",
        "When each run first drifted",
        "The step by which half of the test trajectories show a fault, median over seeds, as seen without "
        "the truth: amplitude (energy grows or decays as it never did in training), blocking (energy piles "
        "up at high wavenumbers), phase (waves travel at another speed; only where the training data evolve "
        "mode by mode). Small print: the earliest trajectory of any seed, and the part of all trajectories "
        "that had the fault by the end.",
        (
            Column("Task", numeric=False),
            Column("Model", numeric=False),
            Column("Amplitude"),
            Column("Blocking"),
            Column("Phase"),
        ),
        tuple(rows),
        names=2,
    )


def _drift_row(row: Row, group: Group) -> tuple[Cell, ...]:
    watched = [run.monitor for run in group.runs if run.monitor is not None]
    cells = (_drift_cell([monitor[fault] for monitor in watched]) for fault in FAULTS)
    return (task_cell(row), name_cell(label(group.model)), *cells)


def _drift_cell(faults: list[Fault]) -> Cell:
    part = sum(fault.part for fault in faults) / len(faults)
    first = min((fault.first for fault in faults if fault.first is not None), default=None)
    # A run that never drifted counts as later than any that did.
    half = spread(math.inf if fault.half is None else float(fault.half) for fault in faults).median
    notes = () if first is None else (f"first at step {first}", f"{100 * part:.0f} % of trajectories")
    facts = {"part": part} | ({} if first is None else {"first": first})
    if math.isfinite(half):
        return Cell(f"{half:g}", half, notes, facts)
    return Cell("never" if first is None else "not half", None, notes, facts)
