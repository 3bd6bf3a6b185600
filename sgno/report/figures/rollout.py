"""Error growth over the rollout, one panel a task."""

import math

from matplotlib.figure import Figure

from sgno.report.figures.style import figure_text, finish_panels, new_figure, plot_curve
from sgno.report.groups import Comparison, Row
from sgno.report.models import ABLATIONS, is_sgno_x, order

MOST_PANELS = 12


def rollout_figure(comparison: Comparison) -> Figure | None:
    """Median mean nRMSE with quartile band against the step, logarithmic, for every row there is room for."""
    rows = comparison.rows[:MOST_PANELS]
    if not rows:
        return None
    columns = min(3, len(rows))
    height = math.ceil(len(rows) / columns)
    figure = new_figure(3.7 * columns, 2.7 * height + 0.5)
    panels = figure.subplots(height, columns, squeeze=False, sharex=False)
    handles = {}
    for axes, row in zip(panels.flat, rows, strict=False):
        for model in main_models(row):
            plot_curve(axes, row.groups[model])
        axes.set_yscale("log")
        axes.set_title(figure_text(row.title), fontsize=8.5)
        axes.set_xlim(left=0)
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    finish_panels(figure, panels, len(rows), handles, xlabel="rollout step", ylabel="mean nRMSE")
    return figure


def main_models(row: Row) -> list[str]:
    """The models of the main table, in its order: neither ablations nor variants of SGNO-X."""
    kept = [m for m in row.groups if m not in ABLATIONS and (not is_sgno_x(m) or m == "sgno-x")]
    return sorted(kept, key=order)
