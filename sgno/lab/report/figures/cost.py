"""Error against what it cost to train, one panel a task."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgno.lab.report.figures.panels import main_models, task_panels
from sgno.lab.report.figures.style import figure_text
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import look


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
