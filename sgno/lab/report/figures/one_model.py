"""What `sgno certify`, `evaluate` and `explain` draw of one model."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
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


MODEL, TRUTH = "#c2410c", "#1c1d21"


def evaluation_figure(
    nrmse: np.ndarray,
    correlation: np.ndarray,
    spectra: Sequence[tuple[int, np.ndarray, np.ndarray]],
    *,
    title: str,
    tau: float,
    stable_step: int,
) -> Figure:
    """Three panels.

    **Arguments:**

    - `nrmse`, `correlation`: `(times, trajectories)`; the mean is drawn with the range of all trajectories.
    - `spectra`: step, spectrum of the model, spectrum of the reference, for the steps to show.
    - `tau`, `stable_step`: the threshold of the stable step and where it was crossed.
    """
    figure = new_figure(11.0, 3.4)
    errors, correlations, spectrum = figure.subplots(1, 3)
    steps = np.arange(1, len(nrmse) + 1)
    for axes, values in ((errors, nrmse), (correlations, correlation)):
        shown = np.where(np.isfinite(values), values, np.nan)
        # A step at which every trajectory is non-finite has no range to draw.
        drawn = ~np.isnan(shown).all(axis=1)
        low, high = np.nanmin(shown[drawn], axis=1), np.nanmax(shown[drawn], axis=1)
        axes.fill_between(steps[drawn], low, high, color=MODEL, alpha=0.16, linewidth=0)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = values.astype(float).mean(axis=1)
        axes.plot(steps, np.where(np.isfinite(mean), mean, np.nan), color=MODEL, linewidth=1.8)
        axes.set_xlim(left=0)
        axes.set_xlabel("rollout step")
    errors.set_yscale("log")
    errors.axhline(tau, color=SOFT, linewidth=0.9, linestyle=":")
    errors.set_title(f"nRMSE: {stable_step} steps below {tau:g}")
    correlations.set_ylim(min(0.0, correlations.get_ylim()[0]), 1.02)
    correlations.set_title("correlation with the reference")
    for i, (step, model, reference) in enumerate(spectra):
        fade = 1.0 if i == len(spectra) - 1 else 0.45
        kept = np.isfinite(model) & (model > 0)
        k = np.arange(len(model))
        spectrum.plot(k, reference, color=TRUTH, alpha=fade, linewidth=2.2, label=f"reference, step {step}")
        spectrum.plot(
            k[kept], model[kept], color=MODEL, alpha=fade, linestyle="--", label=f"model, step {step}"
        )
    spectrum.set_yscale("log")
    spectrum.set_xlabel("wavenumber")
    spectrum.set_title("energy spectrum")
    spectrum.legend(fontsize=7.5)
    figure.suptitle(figure_text(title, 110), x=0.01, ha="left", fontsize=9, color=SOFT)
    return figure


_LEARNED, _TRUE = "#B5179E", INK
_MOST_TERMS = 6


def explain_figure(explanation: Mapping[str, Any], title: str) -> Figure:
    """One row a curve (damping and dispersion), then the strongest terms and the forcing if there are any.

    **Arguments:**

    - `explanation`: an `Explanation` as JSON. A curve may hold `true_damping` and `true_dispersion`.
    """
    curves = explanation["curves"]
    terms = [term for term in explanation["terms"] if term["strength"] > 0][:_MOST_TERMS]
    further = bool(terms) + (explanation["forcing"] is not None)
    rows = len(curves) + (1 if further else 0)
    figure = new_figure(8.4, 2.5 * rows + 0.6)
    figure.suptitle(figure_text(title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    for part, curve in zip(parts, curves, strict=False):
        _curve(part.subplots(1, 2), curve, explanation)
    if further:
        panels = np.atleast_1d(parts[-1].subplots(1, further))
        if terms:
            _terms(panels[0], terms, explanation["channels"])
        if explanation["forcing"] is not None:
            _forcing(panels[-1], np.asarray(explanation["forcing"]))
    return figure


def _curve(panels: Any, curve: Mapping[str, Any], explanation: Mapping[str, Any]) -> None:
    k, known = np.asarray(curve["wavenumber"]), np.asarray(curve["known"], bool)
    axis = "xyz"[curve["axis"]]
    channel = f"channel {curve['channel']}, " if explanation["channels"] > 1 else ""
    rate = np.asarray(curve["damping"]) - np.asarray(curve["growth"])
    for axes, name, learned, true in (
        (panels[0], "damping a step", rate, curve.get("true_damping")),
        (panels[1], "phase a step, rad", _phase(curve), curve.get("true_dispersion")),
    ):
        if true is not None:
            axes.plot(k, true, color=_TRUE, linewidth=3, alpha=0.25, label="equation, linear part")
        axes.plot(k[known], learned[known], "o", markersize=3, color=_LEARNED, label="learned")
        axes.set_title(f"{channel}along {axis}: {name}", fontsize=9)
        axes.set_xlabel("wavenumber")
        if known.any():
            axes.set_xlim(-0.5, k[known].max() + 0.5)
            seen = (
                learned[known] if true is None else np.concatenate([learned[known], np.asarray(true)[known]])
            )
            reach = max(seen.max() - seen.min(), 1e-12)
            axes.set_ylim(seen.min() - 0.08 * reach, seen.max() + 0.08 * reach)
        axes.legend(fontsize=7.5)


def _phase(curve: Mapping[str, Any]) -> np.ndarray:
    """The learned phase on the equation's branch, or the one nearest to 0: one step cannot tell."""
    learned = np.asarray(curve["dispersion"])
    near = np.asarray(curve.get("true_dispersion", 0.0))
    return learned + 2 * np.pi * np.round((near - learned) / (2 * np.pi))


def _terms(axes: Axes, terms: list[Mapping[str, Any]], channels: int) -> None:
    names = [
        figure_text((f"channel {term['channel']}: " if channels > 1 else "") + term["product"])
        for term in terms
    ]
    place = np.arange(len(terms))[::-1]
    axes.barh(place, [term["strength"] for term in terms], height=0.55, color=_LEARNED, alpha=0.75)
    axes.set_ylim(-1, len(terms))
    axes.set_yticks(place, names, fontsize=7.5)
    axes.set_title("closure: root mean square added in one step", fontsize=9)


def _forcing(axes: Axes, forcing: np.ndarray) -> None:
    """The field itself in 1D and 2D, its middle slice in 3D; of several channels the strongest."""
    field = forcing[np.argmax(np.abs(forcing).reshape(len(forcing), -1).max(axis=1))]
    if field.ndim == 1:
        axes.plot(field, color=_LEARNED)
    else:
        field = field[..., field.shape[-1] // 2] if field.ndim == 3 else field
        reach = float(np.abs(field).max()) or 1.0
        image = axes.imshow(field.T, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach)
        axes.figure.colorbar(image, ax=axes, shrink=0.8)
        axes.tick_params(colors=SOFT, labelsize=7)
        axes.grid(False)
    axes.set_title("static forcing a step", fontsize=9)
