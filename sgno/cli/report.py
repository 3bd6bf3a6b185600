"""`sgno report`"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sgno.cli.console import console


class Format(StrEnum):
    """What a report can be written as."""

    html = "html"
    md = "md"
    csv = "csv"
    tex = "tex"


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of `sgno run` or `sgno reproduce`.")
    ],
    format: Annotated[
        Format, typer.Option(help="One HTML page, or the tables as Markdown, CSV or LaTeX.")
    ] = Format.html,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write. [default: DIR/report.html; standard output for the others]"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures to this folder, as PNG and SVG.")
    ] = None,
):
    """Make tables, figures and one interactive page from a folder of finished runs.

    The page is a single file that works offline and in print. What was not run is shown as not run.
    """
    from sgno.io.files import write_bytes
    from sgno.lab.report import render_tables, write_report

    if format is Format.html:
        path = write_report(folder, out)
        console.print(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).", soft_wrap=True, markup=False)
    else:
        text = render_tables(folder, format.value)
        if out is None:
            print(text, end="", flush=True)
        else:
            write_bytes(out, [text.encode()])
            console.print(f"Wrote {out}.", soft_wrap=True, markup=False)
    if figures is not None:
        from sgno.lab.report.figures import write_figures

        written = write_figures(folder, figures)
        console.print(f"Wrote {len(written)} figures to {figures}.", soft_wrap=True, markup=False)
