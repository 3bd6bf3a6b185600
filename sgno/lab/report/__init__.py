"""Store -> statistics -> tables and figures -> one HTML page. No jax here."""

from sgno.lab.report.page import write_report as write_report
from sgno.lab.report.text import render_tables as render_tables
