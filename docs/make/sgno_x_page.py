"""The page of what SGNO-X scored: tables of the report, from the store of what was really run."""

import dataclasses
from pathlib import Path

from sgno.lab.report.figures.ratios import frontier_figure
from sgno.lab.report.figures.style import encode, styled
from sgno.lab.report.groups import Comparison, compare
from sgno.lab.report.runs import read_store
from sgno.lab.report.tables.details import transfer_table
from sgno.lab.report.tables.main import main_table
from sgno.lab.report.tables.sgno_x import frontier_table, sgno_x_ablation_table, sgno_x_table
from sgno.lab.report.tables.table import Table
from sgno.lab.report.text import markdown
from sgno.lab.tasks import TASKS

# Wide tables need the room of the table of contents.
_HEAD = """---
hide: [toc]
---
<!-- Made while the site is built, by docs/make/sgno_x_page.py. -->

# SGNO-X, measured

From `results/desk`, made by the commands below; a cell that is missing was not run. Spreads over seeds are in
the report beside them. What the form assumes, and why this is no comparison of equal prior knowledge, is on
the page of [SGNO-X](sgno-x.md).

```sh
sgno reproduce --preset beyond --out results/desk
sgno frontier --out results/desk
```
"""
_FURTHER = (
    "Scenarios beyond the ten, with a shock, a front, two coupled channels, a cubic term, and both. They "
    "were named while SGNO-X was developed, and none was left out. Median GMean100 over seeds, every model "
    "by the budget of its row: in 1D the full protocol, in 2D 64² and 2,000 updates."
)
_PICTURE = "sgno-x-frontier.png"
# Of the report's table of SGNO-X: before it scores, from it on what they cost.
_FIRST_COST = 7


def pages(root: Path) -> dict[str, str | bytes]:
    """The page and its figure, by their paths in the site."""
    contents = read_store(root)
    comparison, frontier = compare(contents.runs), contents.frontier
    made: dict[str, str | bytes] = {}
    text = [_HEAD, markdown(_tables(comparison))]
    if frontier is not None:
        with styled():
            made[_PICTURE] = encode(frontier_figure(frontier), "png")
        text += [markdown([frontier_table(frontier)]), f"\n![Error against time of a step]({_PICTURE})\n"]
    return {"sgno-x-results.md": "\n".join(text), **made}


def _tables(comparison: Comparison) -> list[Table]:
    scores, parts = sgno_x_table(comparison), sgno_x_ablation_table(comparison)
    tables: list[Table | None] = []
    if scores is not None:
        tables += [
            _columns(scores, [i for i in range(len(scores.columns)) if i < _FIRST_COST]),
            dataclasses.replace(
                _columns(scores, [0, *range(_FIRST_COST, len(scores.columns))]),
                title="What SGNO-X costs",
                caption="Numbers learned, and seconds as they were measured, often beside other work.",
            ),
        ]
    tables += [parts, _further(comparison), _columns(transfer_table(comparison))]
    return [_titled(table) for table in tables if table is not None]


def _columns(table: Table, shown: list[int] | None = None) -> Table:
    """Some columns, without the small print beneath their numbers, which the report has."""
    shown = list(range(len(table.columns))) if shown is None else shown
    name, *numbers = shown
    rows = [(row[name], *(dataclasses.replace(row[i], notes=()) for i in numbers)) for row in table.rows]
    return dataclasses.replace(
        table,
        caption=table.caption.split(" Small print")[0],
        columns=tuple(table.columns[i] for i in shown),
        rows=tuple(rows),
    )


def _titled(table: Table) -> Table:
    """Beneath a task's name its setting alone."""
    rows = [(dataclasses.replace(row[0], notes=row[0].notes[-1:]), *row[1:]) for row in table.rows]
    return dataclasses.replace(table, rows=tuple(rows))


def _further(comparison: Comparison) -> Table | None:
    """The main table's rows of scenarios that are not among the ten, with the models that were run there."""
    rows = tuple(row for row in comparison.rows if row.name not in TASKS)
    if not rows:
        return None
    table = main_table(Comparison(rows, ()))
    named = len(table.rows) - len(rows)
    body = table.rows[named:]
    shown = [i for i in range(len(table.columns)) if i == 0 or any(row[i].value is not None for row in body)]
    table = dataclasses.replace(table, title="Further scenarios", caption=_FURTHER, rows=body)
    return _columns(table, shown)
