"""One look for all figures, and the one place that writes them. No global state of matplotlib is touched."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sgno.io.commit import write_bytes
from sgno.lab.report.groups import Group
from sgno.lab.report.models import SGNO, look

INK, SOFT, RULE = "#1c1d21", "#5c606b", "#dfe1e6"
DASHES = {
    "solid": "-",
    "dot": (0, (1, 1.4)),
    "dash": (0, (4, 2)),
    "longdash": (0, (7, 2)),
    "dashdot": (0, (4, 2, 1, 2)),
    "longdashdot": (0, (7, 2, 1, 2)),
}
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    # Ids inside an SVG are otherwise random: the same store should give the same file.
    "svg.hashsalt": "sgno",
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """The style, for the length of a block."""
    with matplotlib.rc_context(cast(Any, _STYLE)):
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure with its own canvas, outside pyplot and its list of open figures."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def figure_text(text: str, most: int = 60) -> str:
    """A text of a record as matplotlib should show it: no formula, no control characters, not too long."""
    kept = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[:most])
    return kept.replace("$", r"\$")


def plot_curve(axes: Axes, group: Group, width: float = 1.4) -> None:
    """Median error at every step with its quartile band, up to the last finite step."""
    style, curve = look(group.model), group.curve
    steps = range(1, len(curve.median) + 1)
    thick = width * (1.7 if group.model in (SGNO, "sgno-x") else 1)
    axes.plot(
        steps,
        curve.median,
        color=style.light,
        linestyle=DASHES[style.dash],
        linewidth=thick,
        label=figure_text(style.label),
    )
    if len(group.runs) > 1:
        axes.fill_between(steps, curve.lower, curve.upper, color=style.light, alpha=0.16, linewidth=0)


# No date inside, so that the same store gives the same file.
_KINDS: dict[str, dict[str, Any]] = {"png": {"dpi": 200}, "svg": {"metadata": {"Date": None}}}


def encode(figure: Figure, kind: str) -> bytes:
    """A figure as the bytes of a `png` or `svg` file."""
    out = io.BytesIO()
    figure.savefig(out, format=kind, facecolor="white", **_KINDS[kind])
    return out.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `name.png` and `name.svg`, each whole or not at all."""
    paths = []
    for kind in _KINDS:
        path = Path(folder) / f"{name}.{kind}"
        write_bytes(path, [encode(figure, kind)])
        paths.append(path)
    return paths
