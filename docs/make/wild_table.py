"""The table of what works on which data: `python docs/make/wild_table.py` writes it into its pages.

Every number is a record of `python -m sgno.lab.wild results/wild/rivals.json`; a dash was not run.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "which-model.md")
BEGIN, END = "<!-- wild:begin -->", "<!-- wild:end -->"
ROWS = {
    "burgers": "one PDE, clean trajectories (Burgers)",
    "burgers-noise1": "... with 1 % noise on the training data",
    "burgers-noise5": "... with 5 % noise",
    "burgers-noise20": "... with 20 % noise",
    "ks": "chaos (Kuramoto-Sivashinsky)",
    "ks-noise1": "... with 1 % noise",
    "ks-samples1": "... from a single trajectory",
    "ks-every5": "... every fifth frame only",
    "kdv": "waves (Korteweg-de Vries)",
    "fitzhugh-nagumo": "two reacting channels (FitzHugh-Nagumo)",
    "schroedinger": "two coupled channels (nonlinear Schrödinger)",
    "burgers-family": "a parameter that differs by trajectory (viscosity)",
    "burgers-controlled": "a known force over time",
    "burgers-half-dt": "forecast at half the time step",
    "advection-given": "a coefficient a(x), known",
    "advection-unknown": "a coefficient a(x), unknown",
    "sine-gordon": "a nonlinearity that is no polynomial (sin u)",
    "burgers-walls": "walls (Burgers, u = 0 at both)",
    "heat-walls": "walls held at 0 and 1 (heat)",
    "burgers-filtered": "scales that the grid does not resolve",
    "wave-hidden": "a hidden quantity (waves, only u seen)",
    "gray-scott-2d": "two dimensions (Gray-Scott, 64 x 64)",
    "navier-stokes-2d": "two dimensions (Navier-Stokes, 64 x 64)",
}
MODELS = {
    "sgno-x-equation": "SGNO-X, equation",
    "sgno-x-start": "SGNO-X, start",
    "linear": "Linear",
    "exact-dmd": "DMD",
    "opinf": "OpInf",
    "pysindy": "PySINDy",
    "weak-sindy": "weak PySINDy",
    "persistence": "persistence",
}
_NOTE = (
    "DMD is PyDMD's exact DMD, OpInf operator inference by `opinf`, PySINDy its PDE library and its weak "
    "form, each with its settings chosen on held-out data. Persistence forecasts no change. "
    "A dash was not run or cannot take the data; *diverged* became non-finite. Again: "
    "`python -m sgno.lab.wild results/wild/rivals.json`."
)


def records() -> dict[tuple[str, str], float | str | None]:
    """What was measured, by row and model; None where the model refused the data."""
    table = json.loads((ROOT / "results" / "wild" / "rivals.json").read_text())["records"]
    return {(r["row"], r["rival"]): r.get("gmean") for r in table if r["noise_seed"] == 0}


def number(value: float | str | None) -> str:
    if isinstance(value, float | int):
        text = f"{value:.2g}" if value >= 1e-3 else f"{value:.0e}"
        return text.replace("e-0", "e-").replace("e+0", "e")
    return "–" if value is None else "*diverged*"


def block() -> str:
    known = records()
    models = [m for m in MODELS if any((row, m) in known for row in ROWS)]
    lines = ["| Your data | " + " | ".join(MODELS[m] for m in models) + " |"]
    lines.append("| --- |" + " ---: |" * len(models))
    for row, description in ROWS.items():
        values = {m: known.get((row, m)) for m in models}
        scores = [v for v in values.values() if isinstance(v, float | int)]
        if not scores:
            continue
        cells = [number(v) if v != min(scores) else f"**{number(v)}**" for v in values.values()]
        lines.append(f"| {description} | " + " | ".join(cells) + " |")
    return "\n".join([BEGIN, *lines, "", _NOTE, END])


def update(page: Path) -> None:
    text = page.read_text()
    page.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: block(), text, flags=re.S))


if __name__ == "__main__":
    for page in PAGES:
        update(page)
