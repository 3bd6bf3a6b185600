"""The error of a rollout under its certified bound and under the bound of a local estimate."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from sgno.lab.report.figures.style import INK, SOFT, figure_text, new_figure

_CERTIFIED, _INDICATED, _MEASURED = "#b3402a", "#b8860b", "#1f5fa8"


def certificate_figure(name: str, evidence: Mapping[str, Any], words: Sequence[str]) -> Figure:
    """Measured error, certified bound and indicated bound against the step, with what is guaranteed in words.

    **Arguments:**

    - `name`: what the figure is of.
    - `evidence`: `error`, `log10_certified_bound` and `log10_indicated_bound`, a number (or None) a step.
    - `words`: sentences to print beneath.
    """
    text = [line for sentence in words for line in [*textwrap.wrap(sentence, 118), ""]]
    figure = new_figure(8.6, 4.2 + 0.155 * len(text))
    axes, foot = figure.subplots(2, 1, height_ratios=[4.0, 0.155 * len(text)])
    error = [x if x else math.nan for x in evidence["error"]]
    measured = [math.log10(x) for x in error if not math.isnan(x)]
    low = min(measured, default=-8) - 0.5
    # The certified bound may pass 10^600: what is worth seeing ends a few decades above what was measured.
    high = max([*measured, low + 1]) + 6
    steps = range(1, len(error) + 1)
    for key, color, dash, label in (
        ("log10_certified_bound", _CERTIFIED, "-", "certified bound (guaranteed on these trajectories)"),
        ("log10_indicated_bound", _INDICATED, "--", "bound with the local estimate (an indication)"),
    ):
        bound = [math.nan if x is None else x for x in evidence[key]]
        shown = [10**x if x <= high + 3 else math.nan for x in bound]
        axes.plot(steps, shown, color=color, linestyle=dash, linewidth=1.6, label=label)
        above = next((t for t, x in zip(steps, bound, strict=True) if not x <= high), None)
        if above is not None and key == "log10_certified_bound":
            last = bound[-1]
            axes.text(
                0.99,
                0.97,
                f"certified bound leaves the picture at step {above}"
                + (f", 10^{last:.0f} at step {len(bound)}" if math.isfinite(last) else ""),
                transform=axes.transAxes,
                ha="right",
                va="top",
                color=_CERTIFIED,
                fontsize=8,
            )
    axes.plot(
        steps, error, color=_MEASURED, linewidth=2.2, label="measured error $e_t$, largest of the samples"
    )
    axes.set_yscale("log")
    axes.set_ylim(10**low, 10**high)
    axes.set_xlim(0, len(error))
    axes.set_xlabel("rollout step t")
    axes.set_ylabel("error (root mean square)")
    axes.set_title(figure_text(name))
    axes.legend(loc="lower right", fontsize=8)
    foot.set_axis_off()
    foot.text(
        0, 1, figure_text("\n".join(text), 4000), va="top", fontsize=8, color=INK, transform=foot.transAxes
    )
    axes.tick_params(colors=SOFT)
    return figure
