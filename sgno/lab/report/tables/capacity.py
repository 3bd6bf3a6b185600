"""How large every model is, counted both ways, beside the paper's count."""

from collections.abc import Mapping
from typing import Any

from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group
from sgno.lab.report.models import label, order
from sgno.lab.report.tables.table import NOT_RUN, Cell, Column, Table, name_cell


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
        tuple(_row(*entry) for entry in entries),
        names=2,
    )


def _row(model: str, dims: int, group: Group | None) -> tuple[Cell, ...]:
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
