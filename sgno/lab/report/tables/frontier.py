"""SGNO-X against the solver with fewer substeps: error and time of one step."""

from sgno.lab.report.frontier import Frontier
from sgno.lab.report.tables.table import Cell, Column, Table, name_cell, number_cell


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
