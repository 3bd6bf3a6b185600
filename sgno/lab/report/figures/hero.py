"""The picture at the head of README: truth, SGNO, its strongest rival, and how their errors grow."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgno.errors import InputError
from sgno.lab.report.fields import Frames, load_prediction, load_truth
from sgno.lab.report.figures.panels import main_models
from sgno.lab.report.figures.style import figure_text, new_figure, plot_curve
from sgno.lab.report.groups import Comparison, Row
from sgno.lab.report.models import SGNO, label
from sgno.lab.store import Store

_FAVOURITES = ("ks1d", "kdv1d", "disp1d", "adv1d", "diff1d")


def hero_figure(comparison: Comparison, store: Store) -> Figure | None:
    """Space-time pictures of one real run in 1D, ks1d if there is one, and all error curves of that task."""
    for row in sorted(comparison.rows, key=_preference):
        rival = row.best(networks_only=True) or row.best()
        if row.dims != 1 or SGNO not in row.groups or rival is None:
            continue
        try:
            truth = load_truth(store, row.groups[SGNO].first)
            predictions = [load_prediction(store, row.groups[model].first) for model in (SGNO, rival.model)]
        except (InputError, OSError):
            continue
        if all(prediction.values.shape == truth.values.shape for prediction in predictions):
            return _draw(row, rival.model, truth, predictions)
    return None


def _preference(row: Row) -> tuple:
    place = _FAVOURITES.index(row.name) if row.name in _FAVOURITES else len(_FAVOURITES)
    return place, not row.as_paper, row.id


def _draw(row: Row, rival: str, truth: Frames, predictions: list[Frames]) -> Figure:
    figure = new_figure(11.5, 5.0)
    panels = figure.subplot_mosaic(
        [["truth", "a", "b"], ["curves", "error a", "error b"]], width_ratios=[1.15, 1, 1]
    )
    top = truth.amplitude
    states = [frames.values[:, 0, 0].T for frames in (truth, *predictions)]
    fields = {"truth": states[0], "a": states[1], "b": states[2]}
    titles = {
        "truth": figure_text(f"{row.label}: reference"),
        "a": label(SGNO),
        "b": figure_text(label(rival)),
    }
    for name, field in fields.items():
        image = _space_time(panels[name], field, top, "RdBu_r", titles[name], truth.every)
    figure.colorbar(image, ax=[panels["truth"], panels["a"], panels["b"]], label="u", shrink=0.9, pad=0.01)
    with np.errstate(over="ignore", invalid="ignore"):
        errors = {"error a": states[1] - states[0], "error b": states[2] - states[0]}
    for name, model in (("error a", SGNO), ("error b", rival)):
        image = _space_time(
            panels[name], errors[name], top, "PuOr_r", figure_text(f"{label(model)}: error"), truth.every
        )
        panels[name].set_xlabel("rollout step")
    figure.colorbar(image, ax=[panels["error a"], panels["error b"]], label="error", shrink=0.9, pad=0.01)
    axes = panels["curves"]
    for model in main_models(row):
        plot_curve(axes, row.groups[model])
    axes.set_yscale("log")
    axes.set_xlim(0, truth.every * (len(truth.values) - 1))
    axes.set_xlabel("rollout step")
    axes.set_ylabel("mean nRMSE")
    axes.set_title("Error growth, all test trajectories")
    axes.legend(fontsize=7, ncols=3, loc="best", columnspacing=1.0, handlelength=1.8)
    figure.suptitle(figure_text(f"Closed-loop rollout, {row.title}", 100), fontsize=10, x=0.01, ha="left")
    return figure


def _space_time(axes: Axes, field: np.ndarray, top: float, colours: str, title: str, every: int):
    extent = (0, every * field.shape[1], 0, 1)
    axes.set_facecolor("#888888")
    image = axes.imshow(
        np.ma.masked_invalid(field),
        origin="lower",
        aspect="auto",
        extent=extent,
        cmap=colours,
        vmin=-top,
        vmax=top,
        interpolation="nearest",
    )
    axes.set_title(title)
    axes.set_yticks([0, 1], ["0", "L"])
    axes.set_ylabel("x", labelpad=-4)
    axes.grid(visible=False)
    return image
