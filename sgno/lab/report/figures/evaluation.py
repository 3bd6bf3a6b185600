"""How one model does on one set of trajectories: errors, correlation and spectra."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from sgno.lab.report.figures.style import SOFT, figure_text, new_figure

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
