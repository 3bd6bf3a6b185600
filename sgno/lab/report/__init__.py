"""Store -> statistics -> tables and figures -> one HTML page. No jax here."""

from sgno.errors import require

for _package in ("jinja2", "matplotlib", "PIL"):
    require(_package, "report", "A report")

from sgno.lab.report.page import write_report as write_report  # noqa: E402
from sgno.lab.report.text import render_tables as render_tables  # noqa: E402
