"""Bars of ratios, and SGNO-X against the solver."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from sgno.lab.report.figures.style import INK, SOFT, figure_text, new_figure
from sgno.lab.report.frontier import Frontier
from sgno.lab.report.groups import Comparison
from sgno.lab.report.models import ABLATIONS, SGNO, label, look
from sgno.lab.report.runs import DIAGNOSTICS
from sgno.lab.report.tables.ratios import (
    SPECTRAL_TITLES,
    ablation_ratio,
    ablation_rows,
    comparators,
    spectral_ratios,
)

_COLOURS = dict(
    zip(DIAGNOSTICS, ("#4B3FA7", "#0A5A9C", "#3A9BDC", "#009E73", "#8A8A1F", "#D55E00"), strict=True)
)


def spectral_figure(comparison: Comparison) -> Figure | None:
    """SGNO over the paper's choice of baseline if that was run, else over our strongest network."""
    found = [
        (row, comparators(row)[0][0]) for row in comparison.rows if SGNO in row.groups and comparators(row)
    ]
    if not found:
        return None
    names = [figure_text(f"{row.label}\n/ {label(group.model)}\n{row.setting}") for row, group in found]
    bars = {
        SPECTRAL_TITLES[name]: (_COLOURS[name], [spectral_ratios(row, group)[name] for row, group in found])
        for name in DIAGNOSTICS
    }
    return _parity_bars(names, bars, "SGNO error / baseline error")


def ablation_figure(comparison: Comparison) -> Figure | None:
    """Error without one part over the error of full SGNO."""
    rows = [row for row in ablation_rows(comparison) if SGNO in row.groups]
    if not rows:
        return None
    names = [figure_text(f"{row.label}\n{row.setting}") for row in rows]
    bars = {
        label(variant): (look(variant).light, [ablation_ratio(row, variant) for row in rows])
        for variant in ABLATIONS
    }
    return _parity_bars(names, bars, "error / full SGNO's error")


def _parity_bars(names: list[str], bars: dict[str, tuple[str, list[float | None]]], title: str) -> Figure:
    figure = new_figure(max(6.0, 1.9 * len(names) + 1.5), 3.8)
    axes = figure.subplots()
    width, drawn = 0.82 / len(bars), [1.0]
    for i, (text, (colour, ratios)) in enumerate(bars.items()):
        for j, ratio in enumerate(ratios):
            x = j - 0.41 + (i + 0.5) * width
            if ratio is None:
                continue
            if not math.isfinite(ratio) or ratio <= 0:
                _say_nonfinite(axes, x)
                continue
            drawn.append(ratio)
            axes.bar(x, ratio - 1, width * 0.92, bottom=1, color=colour, label=None)
        axes.bar([0], [0], bottom=1, color=colour, label=text)
    axes.axhline(1, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.set_yscale("log")
    # Bars are seen to end at parity by matplotlib itself, which would cut off all that hang below it.
    axes.set_ylim(min(drawn) / 1.6, max(drawn) * 1.6)
    axes.set_xticks(range(len(names)), names, fontsize=7.5)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(title)
    figure.legend(loc="outside upper center", ncols=min(6, len(bars)), fontsize=8.5)
    return figure


def _say_nonfinite(axes: Axes, x: float) -> None:
    axes.annotate(
        "non-finite",
        (x, 1),
        xytext=(0, 4),
        textcoords="offset points",
        rotation=90,
        ha="center",
        va="bottom",
        fontsize=7,
        color=SOFT,
    )


_FAMILIES = {"exponax": ("solver (exponax), substeps", INK, "s"), "sgno-x": ("SGNO-X, inner steps", "", "o")}

# Scores end a little below this: the data's own solver, run again.
_ERRORLESS = 1e-11


def frontier_figure(frontier: Frontier) -> Figure:
    """Both families, points labelled with their number of parts; what overflowed stands at the top, and where
    the solver is the one that made the data, which has no error, a line marks its time."""
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    top = 3 * max((p.gmean100 for p in frontier.points if _ERRORLESS < p.gmean100 < math.inf), default=1.0)
    for name, (title, color, marker) in _FAMILIES.items():
        points = sorted((p for p in frontier.points if p.name == name), key=lambda p: p.seconds)
        color = color or look(name).light
        good = [p for p in points if _ERRORLESS < p.gmean100 < math.inf]
        times = [1e3 * p.seconds for p in good]
        spread = [[1e3 * (p.seconds - p.low) for p in good], [1e3 * (p.high - p.seconds) for p in good]]
        axes.errorbar(
            times, [p.gmean100 for p in good], xerr=spread, color=color, marker=marker, capsize=2, label=title
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
