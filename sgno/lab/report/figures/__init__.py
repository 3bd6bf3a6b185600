"""Figures for papers and pages, as PNG and SVG."""

from sgno.lab.report.figures.everything import write_figures as write_figures
