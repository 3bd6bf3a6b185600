"""Figures with one panel a task: error growth, and error against cost."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgno.lab.report.figures.style import figure_text, new_figure, plot_curve
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import ABLATIONS, is_sgno_x, look, order

MOST_PANELS = 15
_COLUMNS = 3


def task_panels(
    comparison: Comparison, draw: Callable[[Axes, Row], None], *, xlabel: str, ylabel: str
) -> Figure | None:
    """A panel for every row there is room for, all with a logarithmic ordinate and one legend below."""
    rows = drawn_rows(comparison)
    if not rows:
        return None
    columns = min(_COLUMNS, len(rows))
    height = math.ceil(len(rows) / columns)
    figure = new_figure(3.7 * columns, 2.7 * height + 0.5)
    panels = figure.subplots(height, columns, squeeze=False)
    handles = {}
    for axes, row in zip(panels.flat, rows, strict=False):
        draw(axes, row)
        axes.set_yscale("log")
        axes.set_title(figure_text(row.title), fontsize=8.5)
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    for axes in panels.flat[len(rows) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(ylabel)
    for axes in panels.flat[max(0, len(rows) - columns) : len(rows)]:
        axes.set_xlabel(xlabel)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(6, len(handles)),
        fontsize=8.5,
    )
    return figure


def drawn_rows(comparison: Comparison) -> list[Row]:
    """The rows worth a panel: not one of a few models where another of its task has twice as many."""
    fullest: dict[str, int] = {}
    for row in comparison.rows:
        fullest[row.name] = max(fullest.get(row.name, 0), len(main_models(row)))
    kept = [row for row in comparison.rows if 2 * len(main_models(row)) > fullest[row.name]]
    return kept[:MOST_PANELS]


def main_models(row: Row) -> list[str]:
    """The models of the main table, in its order: neither ablations nor variants of SGNO-X."""
    kept = [m for m in row.groups if m not in ABLATIONS and (not is_sgno_x(m) or m == "sgno-x")]
    return sorted(kept, key=order)


def rollout_figure(comparison: Comparison) -> Figure | None:
    """Median mean nRMSE with quartile band against the step, logarithmic."""
    return task_panels(comparison, _curves, xlabel="rollout step", ylabel="mean nRMSE")


def _curves(axes: Axes, row: Row) -> None:
    for model in main_models(row):
        plot_curve(axes, row.groups[model])
    axes.set_xlim(left=0)


def cost_figure(comparison: Comparison) -> Figure | None:
    """GMean100 against seconds of training, both logarithmic; down and to the left is better."""
    return task_panels(comparison, _points, xlabel="training time, s", ylabel="GMean100")


def _points(axes: Axes, row: Row) -> None:
    for model in main_models(row):
        group, style = row.groups[model], look(model)
        if not math.isfinite(group.score.median):
            continue
        axes.plot(
            group.train_seconds.median,
            group.score.median,
            linestyle="",
            marker=style.marker,
            markersize=8,
            color=style.light,
            label=figure_text(style.label),
        )
    axes.set_xscale("log")
    axes.margins(0.15)
