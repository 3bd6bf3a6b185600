"""Error against time for one step: SGNO-X below and to the left of the solver is a surrogate worth having."""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from sgno.lab.report.figures.style import INK, figure_text, new_figure
from sgno.lab.report.frontier import Frontier
from sgno.lab.report.models import look

_FAMILIES = {"exponax": ("solver (exponax), substeps", INK, "s"), "sgno-x": ("SGNO-X, inner steps", "", "o")}

# Scores end a little below this: the data's own solver, run again.
_ERRORLESS = 1e-11


def frontier_figure(frontier: Frontier) -> Figure:
    """Both families, points labelled with their number of parts; what overflowed stands at the top, and where
    the solver is the one that made the data, which has no error, a line marks its time."""
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    top = 3 * max((p.gmean100 for p in frontier.points if _ERRORLESS < p.gmean100 < math.inf), default=1.0)
    for name, (label, color, marker) in _FAMILIES.items():
        points = sorted((p for p in frontier.points if p.name == name), key=lambda p: p.seconds)
        color = color or look(name).light
        good = [p for p in points if _ERRORLESS < p.gmean100 < math.inf]
        times = [1e3 * p.seconds for p in good]
        spread = [[1e3 * (p.seconds - p.low) for p in good], [1e3 * (p.high - p.seconds) for p in good]]
        axes.errorbar(
            times, [p.gmean100 for p in good], xerr=spread, color=color, marker=marker, capsize=2, label=label
        )
        lost = [p for p in points if not p.gmean100 < math.inf]
        axes.plot([1e3 * p.seconds for p in lost], [top] * len(lost), "x", color=color, markersize=8)
        for p in [*good, *lost]:
            height = p.gmean100 if p in good else top
            text = str(p.divisions) + ("" if p in good else " overflows")
            axes.annotate(
                text, (1e3 * p.seconds, height), xytext=(5, 5), textcoords="offset points", fontsize=8
            )
        for p in points:
            if p.gmean100 <= _ERRORLESS:
                axes.axvline(1e3 * p.seconds, color=color, linestyle=":", linewidth=1)
                words = f"{p.divisions} made the data "
                axes.text(1e3 * p.seconds, top, words, rotation=90, ha="right", va="top", fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Times span little more than a decade: plain numbers.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"milliseconds a step of {frontier.states} states")
    axes.set_ylabel("GMean100")
    axes.set_title(figure_text(f"{frontier.task}: accuracy against cost"))
    axes.legend()
    return figure
