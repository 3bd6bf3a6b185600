"""Error against what it cost to train, one panel a task."""

import math

from matplotlib.figure import Figure

from sgno.report.figures.rollout import MOST_PANELS, main_models
from sgno.report.figures.style import figure_text, finish_panels, new_figure
from sgno.report.groups import Comparison
from sgno.report.models import look


def cost_figure(comparison: Comparison) -> Figure | None:
    """GMean100 against seconds of training, both logarithmic; down and to the left is better."""
    rows = comparison.rows[:MOST_PANELS]
    if not rows:
        return None
    columns = min(3, len(rows))
    height = math.ceil(len(rows) / columns)
    figure = new_figure(3.7 * columns, 2.8 * height + 0.4)
    panels = figure.subplots(height, columns, squeeze=False)
    handles = {}
    for axes, row in zip(panels.flat, rows, strict=False):
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
        axes.set_yscale("log")
        axes.margins(0.15)
        axes.set_title(figure_text(row.title), fontsize=8.5)
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    finish_panels(figure, panels, len(rows), handles, xlabel="training time, s", ylabel="GMean100")
    return figure
