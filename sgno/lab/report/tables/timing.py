"""What training cost, on the machine that the record names."""

from collections.abc import Mapping
from typing import Any

from sgno.lab.report.groups import Comparison
from sgno.lab.report.models import label
from sgno.lab.report.tables.main import task_cell
from sgno.lab.report.tables.table import Cell, Column, Table, name_cell, number_cell


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
