"""Tables as plain data, one file a table of the paper."""

from sgno.report.tables.everything import all_tables as all_tables
from sgno.report.tables.table import Cell as Cell
from sgno.report.tables.table import Column as Column
from sgno.report.tables.table import Table as Table
