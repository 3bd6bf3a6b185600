"""Pictures of a task: what each model predicts, from the samples in the store, and the truth.

`python docs/make/task_pictures.py` draws the truth of all ten tasks into docs/tasks.
"""

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sgno.errors import InputError
from sgno.lab.report.fields import Frames, load_prediction, load_truth
from sgno.lab.report.figures.panels import main_models
from sgno.lab.report.figures.style import encode, new_figure, plot_curve, styled
from sgno.lab.report.groups import Row
from sgno.lab.report.models import label
from sgno.lab.store import Store

_MOST_MODELS = 4
_FIRST = ("sgno-x", "sgno")
# Fields are shown at these parts of the rollout.
_MOMENTS = (0.05, 0.25, 1.0)


def predictions(row: Row, store: Store) -> bytes | None:
    """Truth and predictions of one test trajectory beside the error curves, as PNG; None without samples."""
    shown = chosen_models(row)
    try:
        truth = load_truth(store, row.groups[shown[0]].first)
        fields = {model: load_prediction(store, row.groups[model].first) for model in shown}
    except (InputError, OSError):
        return None
    fields = {model: frames for model, frames in fields.items() if frames.values.shape == truth.values.shape}
    with styled():
        draw = _space_time if row.dims == 1 else _snapshots
        figure = draw(row, truth, fields)
        figure.suptitle(
            f"First test trajectory of {row.name}, first seed of each model", fontsize=9, x=0.01, ha="left"
        )
        return _smaller(encode(figure, "png"))


def chosen_models(row: Row) -> list[str]:
    """Both of ours, then the best of the others."""
    others = [model for model in main_models(row) if model not in _FIRST]
    others.sort(key=lambda model: row.groups[model].score.median)
    return [*(model for model in _FIRST if model in row.groups), *others][:_MOST_MODELS]


def _space_time(row: Row, truth: Frames, fields: dict[str, Frames]) -> Figure:
    """Time to the right, space upwards; below each prediction its error on the same scale."""
    columns = 1 + len(fields)
    figure = new_figure(2.35 * columns + 0.6, 4.3)
    panels = figure.subplots(2, columns, squeeze=False)
    top = truth.amplitude
    _image(panels[0, 0], truth.values[:, 0, 0].T, top, "reference", truth.every)
    _curves(panels[1, 0], row)
    for j, (model, frames) in enumerate(fields.items(), 1):
        _image(panels[0, j], frames.values[:, 0, 0].T, top, label(model), truth.every)
        with np.errstate(over="ignore", invalid="ignore"):
            error = frames.values[:, 0, 0].T - truth.values[:, 0, 0].T
        _image(panels[1, j], error, top, "its error", truth.every)
        panels[1, j].set_xlabel("step")
    return figure


def _snapshots(row: Row, truth: Frames, fields: dict[str, Frames]) -> Figure:
    """One row a model, one column a moment; the first slice in 3D; the error curves at the right."""
    rows = {"reference": truth, **{label(model): frames for model, frames in fields.items()}}
    figure = new_figure(9.4, 1.75 * len(rows) + 0.4)
    left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    panels = left.subplots(len(rows), len(_MOMENTS), squeeze=False)
    last = len(truth.values) - 1
    for i, (name, frames) in enumerate(rows.items()):
        for j, moment in enumerate(_MOMENTS):
            at = max(1, round(moment * last))
            axes = panels[i, j]
            axes.imshow(
                np.ma.masked_invalid(frames.values[at, 0]).T, origin="lower", cmap="RdBu_r",
                vmin=-truth.amplitude, vmax=truth.amplitude,
            )  # fmt: skip
            axes.set_facecolor("#888888")
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
            if i == 0:
                axes.set_title(f"step {at * truth.every}")
            if j == 0:
                axes.set_ylabel(name)
    _curves(right.subplots(), row)
    return figure


def _image(axes, field: np.ndarray, top: float, title: str, every: int) -> None:
    axes.set_facecolor("#888888")
    axes.imshow(
        np.ma.masked_invalid(field), origin="lower", aspect="auto", extent=(0, every * field.shape[1], 0, 1),
        cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest",
    )  # fmt: skip
    axes.set_title(title, fontsize=9)
    axes.set_yticks([0, 1], ["0", "L"])
    axes.grid(visible=False)


def _curves(axes, row: Row) -> None:
    for model in main_models(row):
        plot_curve(axes, row.groups[model], width=1.0)
    axes.set_yscale("log")
    axes.set_xlim(left=0)
    axes.set_xlabel("step")
    axes.set_title("mean nRMSE, all trajectories", fontsize=9)
    axes.legend(fontsize=6.5, ncols=2, loc="best")


def _smaller(png: bytes) -> bytes:
    """The same picture in 255 colours."""
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(255).save(out, "PNG", optimize=True)
    return out.getvalue()


def draw_truths(folder: Path) -> None:
    """One trajectory of every task by its reference solver, on the task's own grid, as `NAME-truth.webp`."""
    from sgno.lab.data.scenario import make_scenario
    from sgno.lab.tasks import TASKS

    folder.mkdir(parents=True, exist_ok=True)
    for name, task in TASKS.items():
        scenario = make_scenario(task.with_options(num_test_samples=1))
        states = np.asarray(scenario.get_test_data())[0, :, 0]
        with styled():
            figure = _truth(states)
        png = Image.open(io.BytesIO(encode(figure, "png"))).convert("RGB")
        png.thumbnail((1200, 1200))
        png.save(folder / f"{name}-truth.webp", quality=80, method=6)
        print(f"{name}: {states.shape}")


def _truth(states: np.ndarray) -> Figure:
    """A space-time picture in 1D, snapshots in 2D, snapshots of the middle slice in 3D."""
    top = float(np.abs(states).max())
    if states.ndim == 2:
        figure = new_figure(7.5, 2.4)
        axes = figure.subplots()
        _image(axes, states.T, top, "reference: space against step", 1)
        axes.set_xlabel("step")
        return figure
    if states.ndim == 4:
        states = states[:, states.shape[1] // 2]
    moments = (0, 10, 50, 100, 200)
    figure = new_figure(7.5, 1.9)
    for axes, at in zip(figure.subplots(1, len(moments)), moments, strict=True):
        axes.imshow(states[at].T, origin="lower", cmap="RdBu_r", vmin=-top, vmax=top)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"step {at}", fontsize=9)
        axes.grid(visible=False)
    return figure


if __name__ == "__main__":
    draw_truths(Path(__file__).parents[1] / "tasks")
