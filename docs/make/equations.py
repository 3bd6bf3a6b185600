"""Equations as pictures that need no script and no network: matplotlib's own TeX, as inline SVG."""

import functools
import html
import io
import re
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

_POINTS = 14
_STYLE = {"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": "sgno"}


def fence(source: str, *_: Any, **__: Any) -> str:
    """A block of equations, one a line, as pymdownx.superfences asks for it."""
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return '<div class="math">' + "".join(svg(line) for line in lines) + "</div>"


@functools.cache
def svg(tex: str) -> str:
    """One equation in the colour of the text around it.

    **Raises:** `ValueError` of matplotlib for TeX that it does not know, which fails the build.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(0.01, 0.01))
        FigureCanvasSVG(figure)
        figure.text(0, 0, f"${tex}$", fontsize=_POINTS)
        out = io.StringIO()
        figure.savefig(
            out, format="svg", bbox_inches="tight", pad_inches=0.04, transparent=True, metadata={"Date": None}
        )
    picture = out.getvalue()
    picture = picture[picture.index("<svg") :]
    picture = re.sub(r"<metadata>.*?</metadata>", "", picture, flags=re.DOTALL)
    # Ids must differ between the pictures of one page.
    stem = f"eq{abs(_number(tex))}"
    picture = re.sub(r'id="([^"]+)"', rf'id="{stem}-\1"', picture)
    picture = re.sub(r'href="#([^"]+)"', rf'href="#{stem}-\1"', picture)
    picture = picture.replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(tex)}" fill="currentColor"', 1
    )
    return " ".join(picture.split())


def _number(text: str) -> int:
    return functools.reduce(lambda total, byte: (total * 257 + byte) % 1_000_000_007, text.encode(), 0)
