"""Animations for the gallery: `python docs/make/gallery.py [TASK...]`.

One WebP a task into docs/gallery: predictions beside the reference, in 1D each with its error so far. They
come from the samples that finished runs keep. A task that was not run is shown by the models of the zoo, and
by the reference alone if there are none.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from task_pictures import chosen_models

from sgno.errors import InputError
from sgno.lab.report.fields import Frames, as_frames, load_prediction, load_truth
from sgno.lab.report.figures.panels import drawn_rows
from sgno.lab.report.figures.style import new_figure, styled
from sgno.lab.report.groups import Row, compare
from sgno.lab.report.models import label, look
from sgno.lab.report.runs import read_store
from sgno.lab.store import Store
from sgno.lab.tasks import TASKS
from sgno.solve.evaluate import frame_stride

ROOT = Path(__file__).parents[2]
MOST_BYTES = 400_000
_FRAMES = 40
# Quality, and one frame in how many: the first that is small enough is taken.
_CHOICES = ((50, 1), (35, 1), (35, 2), (20, 2), (20, 4))
_MILLISECONDS = 110
_DPI = 80


class Scene(NamedTuple):
    """What is shown of a task: the reference, and what each model makes of its first state."""

    name: str
    dims: int
    truth: Frames
    fields: dict[str, Frames]


def from_store(row: Row, store: Store) -> Scene | None:
    """The kept samples of one row of the comparison; None without any."""
    models = chosen_models(row)
    try:
        truth = load_truth(store, row.groups[models[0]].first)
        fields = {model: load_prediction(store, row.groups[model].first) for model in models}
    except (InputError, OSError):
        return None
    return Scene(row.name, row.dims, truth, fields)


def from_zoo(name: str) -> Scene:
    """The first test trajectory, made again, and the shipped models on it."""
    from sgno.lab.data.scenario import make_scenario
    from sgno.lab.tasks import Task, get_task
    from sgno.lab.zoo import load
    from sgno.lab.zoo.shelf import card, names
    from sgno.solve.evaluate import evaluate, sample_reference

    shipped = [found for found in names() if found.startswith(f"{name}/")]
    task = Task.from_json(card(shipped[0]).task) if shipped else get_task(name)
    test = np.asarray(make_scenario(task.with_options(num_test_samples=1)).get_test_data())
    every = frame_stride(task.num_spatial_dims, task.test_steps)
    shown = lambda states: as_frames(states, task.num_spatial_dims, every)
    fields = {
        card(found).model["kind"]: shown(evaluate(load(found), test).sample) for found in reversed(shipped)
    }
    return Scene(name, task.num_spatial_dims, shown(sample_reference(test)), fields)


def animate(scene: Scene) -> bytes:
    """A scene as an animated WebP."""
    times = np.unique(np.linspace(0, len(scene.truth.values) - 1, _FRAMES).round().astype(int))
    with styled():
        figure, show = (_lines if scene.dims == 1 else _maps)(scene)
        figure.set_dpi(_DPI)
        pictures = [_picture(figure, show, int(t)) for t in times]
    made = b""
    for quality, thin in _CHOICES:
        made = _encoded(pictures[::-thin][::-1], quality, thin * _MILLISECONDS)
        if len(made) <= MOST_BYTES:
            return made
    raise SystemExit(f"{scene.name} takes {len(made):,} bytes at the least, more than {MOST_BYTES:,}.")


def _encoded(pictures: list[Image.Image], quality: int, milliseconds: int) -> bytes:
    out = io.BytesIO()
    first, *others = pictures
    # The last picture stays a while, so that the end can be read.
    durations = [milliseconds] * (len(pictures) - 1) + [1500]
    first.save(out, "WEBP", save_all=True, append_images=others, duration=durations, loop=0, quality=quality)
    return out.getvalue()


def _lines(scene: Scene) -> tuple[Figure, Callable[[int], None]]:
    """The state over space, prediction over reference, and how the error has grown so far."""
    truth, fields = scene.truth, scene.fields
    figure = new_figure(2.3 * len(fields) + 0.3, 3.6)
    panels = figure.subplots(2, len(fields), squeeze=False, sharey="row")
    top, x = 1.25 * truth.amplitude, np.linspace(0, 1, truth.values.shape[-1], endpoint=False)
    size = np.sqrt((truth.values**2).mean(axis=(1, 2, 3)))
    steps = truth.every * np.arange(len(truth.values))
    drawn = []
    for j, (model, frames) in enumerate(fields.items()):
        axes, below = panels[:, j]
        (reference,) = axes.plot(x, truth.values[0, 0, 0], color="#9aa0aa", linewidth=3)
        (predicted,) = axes.plot(x, frames.values[0, 0, 0], color=look(model).light, linewidth=1.3)
        axes.set(ylim=(-top, top), xlim=(0, 1), xticks=[0, 1], xticklabels=["0", "L"])
        axes.set_title(label(model), fontsize=9)
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.sqrt(((frames.values - truth.values) ** 2).mean(axis=(1, 2, 3))) / size
        (grown,) = below.plot(steps, np.maximum(error, 1e-4), color=look(model).light)
        below.set(yscale="log", ylim=(1e-4, 10), xlim=(0, steps[-1]))
        below.set_xlabel("step", fontsize=8)
        drawn.append((reference, predicted, grown, frames.values, np.maximum(error, 1e-4)))
    panels[1, 0].set_ylabel("nRMSE", fontsize=8)
    title = figure.suptitle(f"{scene.name}, step 200   (grey: reference)", fontsize=9, x=0.01, ha="left")

    def show(t: int) -> None:
        title.set_text(f"{scene.name}, step {t * truth.every}   (grey: reference)")
        for reference, predicted, grown, values, error in drawn:
            reference.set_ydata(truth.values[t, 0, 0])
            predicted.set_ydata(values[t, 0, 0])
            grown.set_data(steps[1 : t + 1], error[1 : t + 1])

    return figure, show


def _maps(scene: Scene) -> tuple[Figure, Callable[[int], None]]:
    """Fields side by side; in 3D one row a model, one column a slice through the middle."""
    truth, fields = scene.truth, scene.fields
    shown = {"reference": truth, **{label(model): frames for model, frames in fields.items()}}
    slices = truth.values.shape[1]
    rows, columns = (len(shown), slices) if slices > 1 else (1, len(shown))
    figure = new_figure(2.1 * max(columns, 2), 2.0 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False)
    drawn = []
    for i, (name, frames) in enumerate(shown.items()):
        for j in range(slices):
            axes = panels[i, j] if slices > 1 else panels[0, i]
            axes.set_facecolor("#888888")
            image = axes.imshow(
                frames.values[0, j].T, origin="lower", cmap="RdBu_r", interpolation="nearest",
                vmin=-truth.amplitude, vmax=truth.amplitude,
            )  # fmt: skip
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
            axes.set_title(name if slices == 1 else f"{name}, {'xyz'[j]} = L/2", fontsize=9)
            drawn.append((image, frames.values[:, j]))
    title = figure.suptitle(f"{scene.name}, step 200", fontsize=9, x=0.01, ha="left")

    def show(t: int) -> None:
        title.set_text(f"{scene.name}, step {t * truth.every}")
        for image, values in drawn:
            image.set_data(np.ma.masked_invalid(values[t]).T)

    return figure, show


def _picture(figure: Figure, show: Callable[[int], None], t: int) -> Image.Image:
    show(t)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # Panels are placed once: they would move a little with every picture.
    figure.set_layout_engine("none")
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def main(wanted: list[str]) -> None:
    """Draw the tasks that are named, or all."""
    store, folder = Store(ROOT / "results" / "desk"), ROOT / "docs" / "gallery"
    folder.mkdir(exist_ok=True)
    rows: dict[str, Row] = {}
    for row in drawn_rows(compare(read_store(store.root).runs)):
        # The first of a task is the one with the largest budget.
        rows.setdefault(row.name, row)
    for name in TASKS:
        if wanted and name not in wanted:
            continue
        kept = from_store(rows[name], store) if name in rows else None
        made = animate(kept or from_zoo(name))
        (folder / f"{name}.webp").write_bytes(made)
        print(f"{name}: {len(made):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
