"""When the rollouts of each model first drifted, by the monitor that knows the training data alone."""

import math

from sgno.lab.report.groups import Comparison, Group, Row
from sgno.lab.report.models import label
from sgno.lab.report.runs import FAULTS, Fault
from sgno.lab.report.statistics import spread
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import Cell, Column, Table, name_cell


def drift_table(comparison: Comparison) -> Table | None:
    """Every group whose rollouts were watched, or None if there is none: older stores have no monitor."""
    rows = [
        _row(row, group)
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


def _row(row: Row, group: Group) -> tuple[Cell, ...]:
    watched = [run.monitor for run in group.runs if run.monitor is not None]
    cells = (_cell([monitor[fault] for monitor in watched]) for fault in FAULTS)
    return (task_cell(row), name_cell(label(group.model)), *cells)


def _cell(faults: list[Fault]) -> Cell:
    part = sum(fault.part for fault in faults) / len(faults)
    first = min((fault.first for fault in faults if fault.first is not None), default=None)
    # A run that never drifted counts as later than any that did.
    half = spread(math.inf if fault.half is None else float(fault.half) for fault in faults).median
    notes = () if first is None else (f"first at step {first}", f"{100 * part:.0f} % of trajectories")
    facts = {"part": part} | ({} if first is None else {"first": first})
    if math.isfinite(half):
        return Cell(f"{half:g}", half, notes, facts)
    return Cell("never" if first is None else "not half", None, notes, facts)
