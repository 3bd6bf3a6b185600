"""Settings, versions, machine and date of every number."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sgno.io.files import content_id
from sgno.lab.report.groups import Group, task_grid
from sgno.lab.report.models import label
from sgno.lab.report.runs import Run
from sgno.lab.report.tables.table import NOTHING, Cell, Column, Table, name_cell, number_cell


class Named(NamedTuple):
    """A heading and the facts under it."""

    name: str
    entries: list[tuple[str, str]]


def environment_id(run: Run) -> str:
    return content_id([dict(run.versions), json.dumps(run.machine, sort_keys=True, default=str)])


def environments(runs: Iterable[Run]) -> tuple[dict[str, str], list[Named]]:
    """A short name for every distinct set of versions and machine, and what stands behind each."""
    labels: dict[str, str] = {}
    found: list[Named] = []
    for run in runs:
        key = environment_id(run)
        if key not in labels:
            labels[key] = str(len(labels) + 1)
            entries = [*_entries(run.machine), *_entries(run.versions)]
            found.append(Named(labels[key], entries))
    return labels, found


def runs_table(runs: Iterable[Run], labels: Mapping[str, str]) -> Table:
    """A line for every run in the store."""
    return Table(
        "runs",
        "All runs",
        "",
        (
            Column("Task", numeric=False),
            Column("Model", numeric=False),
            Column("Seed"),
            Column("Grid", numeric=False),
            Column("Updates"),
            Column("GMean100"),
            Column("Stable step"),
            Column("Non-finite steps"),
            Column("Loss diverged at"),
            Column("Training, s"),
            Column("Finished", numeric=False),
            Column("Environment"),
            Column("Run", numeric=False),
        ),
        tuple(_run_row(run, labels[environment_id(run)]) for run in runs),
    )


def _run_row(run: Run, environment: str) -> tuple[Cell, ...]:
    scores = run.scores
    return (
        name_cell(run.task["name"]),
        Cell(label(run.model)),
        Cell(str(run.seed), run.seed),
        Cell(task_grid(run.task), run.task["num_points"]),
        Cell(f"{run.train['updates']:,}", run.train["updates"]),
        number_cell(scores.gmean100),
        Cell(f"{scores.stable_step:g}", scores.stable_step),
        Cell(str(scores.nonfinite_steps), scores.nonfinite_steps),
        NOTHING if run.diverged_at is None else Cell(f"{run.diverged_at:,}", run.diverged_at),
        number_cell(run.train_seconds),
        Cell(run.finished.replace("T", " ").removesuffix("+00:00")),
        Cell(environment, float(environment)),
        Cell(run.id),
    )


def group_settings(group: Group) -> dict[str, Any]:
    """Settings of a group, as its records have them."""
    run = group.first
    return {
        "title": f"{run.task['name']}, {label(group.model)}",
        "entries": [
            ("group", group.id),
            ("task", _line(run.task)),
            ("model", _line(run.config)),
            ("training", _line(run.train)),
            ("seeds", ", ".join(str(member.seed) for member in group.runs)),
            ("data", run.data),
        ],
    }


def _line(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())[:2000]


def _entries(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (str(key), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for key, value in facts.items()
    ]
