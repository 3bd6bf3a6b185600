"""Error growth over the rollout, one panel a task."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgno.lab.report.figures.panels import main_models, task_panels
from sgno.lab.report.figures.style import plot_curve
from sgno.lab.report.groups import Comparison, Row


def rollout_figure(comparison: Comparison) -> Figure | None:
    """Median mean nRMSE with quartile band against the step, logarithmic."""
    return task_panels(comparison, _curves, xlabel="rollout step", ylabel="mean nRMSE")


def _curves(axes: Axes, row: Row) -> None:
    for model in main_models(row):
        plot_curve(axes, row.groups[model])
    axes.set_xlim(left=0)
