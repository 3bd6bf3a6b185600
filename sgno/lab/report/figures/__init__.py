"""All figures of a store, written to a folder."""

from pathlib import Path

from sgno.lab.report.figures.hero import hero_figure
from sgno.lab.report.figures.panels import cost_figure, rollout_figure
from sgno.lab.report.figures.ratios import ablation_figure, frontier_figure, spectral_figure
from sgno.lab.report.figures.style import save, styled
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import read_store
from sgno.lab.store import Store


def write_figures(store_root: Path | str, folder: Path | str) -> list[Path]:
    """Write every figure the store has numbers for, as PNG and SVG.

    **Returns:**

    The files written; a figure with nothing to show is not written.
    """
    contents = read_store(store_root)
    comparison = compare(contents.runs)
    with styled():
        figures = {
            "rollout": rollout_figure(comparison),
            "spectral_ratios": spectral_figure(comparison),
            "ablation": ablation_figure(comparison),
            "error_vs_cost": cost_figure(comparison),
            "frontier": frontier_figure(contents.frontier) if contents.frontier else None,
            "hero": hero_figure(comparison, Store(store_root)),
        }
        return [
            path for name, figure in figures.items() if figure for path in save(figure, Path(folder), name)
        ]
