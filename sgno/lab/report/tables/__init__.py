"""All tables of a report, in its order."""

from sgno.lab.report.frontier import Frontier
from sgno.lab.report.groups import Comparison
from sgno.lab.report.tables.details import capacity_table, drift_table, timing_table, transfer_table
from sgno.lab.report.tables.main import main_table
from sgno.lab.report.tables.ratios import ablation_table, spectral_table
from sgno.lab.report.tables.sgno_x import frontier_table, sgno_x_ablation_table, sgno_x_table
from sgno.lab.report.tables.table import Cell as Cell
from sgno.lab.report.tables.table import Column as Column
from sgno.lab.report.tables.table import Table as Table


def all_tables(comparison: Comparison, frontier: Frontier | None = None) -> list[Table]:
    """Main; SGNO-X, its parts, the solver, if run; spectral, drift, ablation, transfer, capacity, time."""
    tables = [
        main_table(comparison),
        sgno_x_table(comparison),
        sgno_x_ablation_table(comparison),
        frontier_table(frontier) if frontier else None,
        spectral_table(comparison),
        drift_table(comparison),
        ablation_table(comparison),
        transfer_table(comparison),
        capacity_table(comparison),
        timing_table(comparison),
    ]
    return [table for table in tables if table is not None]
