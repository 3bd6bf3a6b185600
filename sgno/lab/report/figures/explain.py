"""What an SGNO-X learned, drawn: rates against wavenumber, the strongest terms, the forcing."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgno.lab.report.figures.style import INK, SOFT, figure_text, new_figure

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
