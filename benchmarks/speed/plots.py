"""The figures of a benchmark: bars for the comparison, lines for the scaling and for the history."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter, NullLocator

from benchmarks.speed.cases import BASELINES
from benchmarks.speed.summary import rows

OURS, THEIRS, THIRD = "#0072b2", "#d55e00", "#e69f00"


def bar_chart(groups: Mapping[str, Any], path: Path) -> None:
    """Updates and rollouts of SGNO against PyTorch, and of the baselines under both loops."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    for d in (1, 2, 3):
        top, bottom = axes[0][d - 1], axes[1][d - 1]
        _pairs(
            top,
            {
                "update": rows(groups, f"update-{d}d"),
                "rollout / 200": rows(groups, f"rollout-{d}d"),
            },
            {"sgno": OURS, "torch, plain": THEIRS, "torch, tuned": THIRD},
        )
        top.set_title(f"{d}D: SGNO here and in PyTorch")
        nets = {net: rows(groups, f"update-{d}d-{net}") for net in BASELINES}
        _pairs(bottom, nets, {"our loop": OURS, "APEBench's trainer": THEIRS})
        bottom.set_title(f"{d}D: update of the baselines")
    figure.suptitle("Milliseconds (lower is better); whiskers span the repeats")
    _save(figure, path)


def _pairs(axis, measured: Mapping[str, Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    """Grouped bars: one cluster per key of `measured`, one colour per subject."""
    width = 0.8 / len(colours)
    for i, (subject, colour) in enumerate(colours.items()):
        found = [(x, group[subject]) for x, group in enumerate(measured.values()) if subject in group]
        if not found:
            continue
        middle = [1e3 * _per_step(r, r["seconds"]) for _, r in found]
        below = [m - 1e3 * _per_step(r, r["spread"][0]) for m, (_, r) in zip(middle, found, strict=True)]
        above = [1e3 * _per_step(r, r["spread"][1]) - m for m, (_, r) in zip(middle, found, strict=True)]
        places = [x + (i - (len(colours) - 1) / 2) * width for x, _ in found]
        bars = axis.bar(places, middle, width, yerr=[below, above], color=colour, label=subject, capsize=2)
        axis.bar_label(
            bars, labels=[f"{m:.0f}" if m >= 10 else f"{m:.1f}" for m in middle], fontsize=7, padding=2
        )
    axis.set_xticks(range(len(measured)), list(measured))
    if not axis.containers:
        _not_measured(axis)
        return
    axis.set_yscale("log")
    _plain_numbers(axis.yaxis)
    low, high = axis.get_ylim()
    # Room for the legend above the highest bar.
    axis.set_ylim(low, high * (high / low) ** 0.3)
    axis.legend(fontsize=7, loc="upper right", ncols=len(colours))


def _plain_numbers(axis) -> None:
    """10, 100 and 1000 on a logarithmic axis, and nothing in between."""
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_formatter(NullFormatter())


def _per_step(record: Mapping[str, Any], seconds: float) -> float:
    """Seconds of one update, or of one step of a rollout."""
    return seconds / record["case"]["timed_steps"]


def scaling_plot(groups: Mapping[str, Any], path: Path) -> None:
    """Time of an SGNO update against points and modes."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    for kind, axis in zip(("points", "modes"), axes, strict=True):
        for d, colour in zip((1, 2, 3), (OURS, THEIRS, THIRD), strict=True):
            found = sorted((_abscissa(kind, r), r) for r in rows(groups, f"{kind}-{d}d").values())
            if not found:
                continue
            x = [value for value, _ in found]
            y = [1e3 * record["seconds"] for _, record in found]
            axis.loglog(x, y, "o-", color=colour, label=f"{d}D")
            if kind == "points":
                # Through the finest grid: measured points above the line on the left are fixed costs.
                line = [y[-1] * n * math.log2(n) / (x[-1] * math.log2(x[-1])) for n in x]
                axis.loglog(x, line, ":", color=colour, linewidth=1)
        axis.set_xlabel({"points": "grid points", "modes": "modes per half axis"}[kind])
        axis.set_ylabel("ms per update")
        axis.grid(True, which="both", alpha=0.2)
        _plain_numbers(axis.yaxis)
        _plain_numbers(axis.xaxis)
        if axis.lines:
            axis.legend()
            if kind != "points":
                axis.xaxis.set_major_locator(
                    FixedLocator(sorted({x for line in axis.lines for x in line.get_xdata()}))
                )
                axis.xaxis.set_minor_locator(NullLocator())
        else:
            _not_measured(axis)
    axes[0].set_title("dotted: N log N")
    _save(figure, path)


def history_plot(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Every ratio that was measured more than once, and the updates of SGNO, by commit."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    commits = [f"{entry['commit']}\n{entry['date'][:10]}" for entry in history]
    names = list(dict.fromkeys(what for entry in history for what in entry["ratios"]))
    followed = [n for n in names if "sgno" in n and "update" in n and "solver" not in n]
    for name in followed:
        found = [(i, entry["ratios"][name]) for i, entry in enumerate(history) if name in entry["ratios"]]
        axis.plot(*zip(*found, strict=True), "o-", label=name)
    axis.set_xticks(range(len(commits)), commits, fontsize=7)
    axis.set_title("Ratios within one run, by commit")
    if followed:
        axis.set_yscale("log")
        for formatted in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            formatted(FormatStrFormatter("%g"))
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        _not_measured(axis)
    _save(figure, path)


def _not_measured(axis: Axes) -> None:
    axis.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axis.transAxes)
    axis.set_yticks([])


def _abscissa(kind: str, record: Mapping[str, Any]) -> int:
    case = record["case"]
    if kind == "points":
        return math.prod(case["points"])
    return case["settings"]["num_modes"]


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
