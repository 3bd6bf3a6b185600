"""Animations for the gallery, from the samples of finished runs: `python docs/make/gallery.py [TASK...]`.

One WebP a task into docs/gallery: predictions beside the reference, in 1D each with its error so far.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from task_pictures import chosen_models

from sgno.errors import InputError
from sgno.report.fields import Frames, load_prediction, load_truth
from sgno.report.figures.style import new_figure, styled
from sgno.report.groups import Row, compare
from sgno.report.models import label, look
from sgno.report.runs import read_store
from sgno.study.store import Store

ROOT = Path(__file__).parents[2]
MOST_BYTES = 400_000
_FRAMES = 40
_MILLISECONDS = 110
_DPI = 80


def animate(row: Row, store: Store) -> bytes | None:
    """One row of the comparison as an animated WebP; None without samples."""
    models = chosen_models(row)
    try:
        truth = load_truth(store, row.groups[models[0]].first)
        fields = {model: load_prediction(store, row.groups[model].first) for model in models}
    except (InputError, OSError):
        return None
    times = np.unique(np.linspace(0, len(truth.values) - 1, _FRAMES).round().astype(int))
    with styled():
        figure, show = (_lines if row.dims == 1 else _maps)(row, truth, fields)
        figure.set_dpi(_DPI)
        pictures = [_picture(figure, show, int(t)) for t in times]
    out = io.BytesIO()
    first, *others = pictures
    # The last picture stays a while, so that the end can be read.
    durations = [_MILLISECONDS] * (len(pictures) - 1) + [1500]
    first.save(out, "WEBP", save_all=True, append_images=others, duration=durations, loop=0, quality=50)
    return out.getvalue()


def _lines(row: Row, truth: Frames, fields: dict[str, Frames]) -> tuple[Figure, Callable[[int], None]]:
    """The state over space, prediction over reference, and how the error has grown so far."""
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
    title = figure.suptitle(f"{row.name}, step 200   (grey: reference)", fontsize=9, x=0.01, ha="left")

    def show(t: int) -> None:
        title.set_text(f"{row.name}, step {t * truth.every}   (grey: reference)")
        for reference, predicted, grown, values, error in drawn:
            reference.set_ydata(truth.values[t, 0, 0])
            predicted.set_ydata(values[t, 0, 0])
            grown.set_data(steps[1 : t + 1], error[1 : t + 1])

    return figure, show


def _maps(row: Row, truth: Frames, fields: dict[str, Frames]) -> tuple[Figure, Callable[[int], None]]:
    """Fields side by side; the first slice in 3D."""
    shown = {"reference": truth, **{label(model): frames for model, frames in fields.items()}}
    figure = new_figure(1.9 * len(shown), 2.3)
    drawn = []
    for axes, (name, frames) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True
    ):
        axes.set_facecolor("#888888")
        image = axes.imshow(
            frames.values[0, 0].T, origin="lower", cmap="RdBu_r", vmin=-truth.amplitude, vmax=truth.amplitude
        )
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.set_title(name, fontsize=9)
        drawn.append((image, frames.values))
    title = figure.suptitle(f"{row.name}, step 200", fontsize=9, x=0.01, ha="left")

    def show(t: int) -> None:
        title.set_text(f"{row.name}, step {t * truth.every}")
        for image, values in drawn:
            image.set_data(np.ma.masked_invalid(values[t, 0]).T)

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
    done: set[str] = set()
    for row in compare(read_store(store.root).runs).rows:
        # One animation a task: the first row, which is the one with the largest budget.
        made = None if row.name in done or (wanted and row.name not in wanted) else animate(row, store)
        if made is None:
            continue
        if len(made) > MOST_BYTES:
            raise SystemExit(
                f"{row.name} takes {len(made):,} bytes, more than {MOST_BYTES:,}: use fewer frames."
            )
        (folder / f"{row.name}.webp").write_bytes(made)
        done.add(row.name)
        print(f"{row.name}: {len(made):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
