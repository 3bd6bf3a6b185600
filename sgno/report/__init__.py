"""Store -> statistics -> tables and figures -> one HTML page. No jax here."""

from sgno.report.page import write_report as write_report
from sgno.report.text import render_tables as render_tables
