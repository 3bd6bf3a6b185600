"""Tables as plain data, one file a table of the paper."""

from sgno.lab.report.tables.everything import all_tables as all_tables
from sgno.lab.report.tables.table import Cell as Cell
from sgno.lab.report.tables.table import Column as Column
from sgno.lab.report.tables.table import Table as Table
