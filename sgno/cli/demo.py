"""`sgno demo`: a file of trajectories, the models fitted to it, the equation found, one page."""

import math
import time
from pathlib import Path
from typing import Annotated, Any

from sgno.cli import options
from sgno.cli.console import console, emit_json, say, show_table, shown

_STEPS = 100
# Of the paper's baselines Res came out best on these data by this budget: docs/which-model.md.
_NETWORK = "res"
_UPDATES = 1000
_TITLES = {
    "persistence": "persistence: tomorrow is like today",
    "linear": "linear: least squares for each mode",
    _NETWORK: f"{_NETWORK}: the strongest network here",
    "sgno": "SGNO",
    "sgno-x-start": "SGNO-X, by least squares alone",
    "equation": "the equation that was found",
}


def demo(
    out: Annotated[Path, options.output(help="Folder to write; its figures are drawn anew.")] = Path("demo"),
    cache: options.Cache = None,
    json: options.Json = False,
):
    """From a file of trajectories to the equation behind it, a forecast, and a page: about two minutes.

    The data are 30 runs of Burgers' equation by a solver of another kind than our models. Each model learns
    one step from them and is rolled out for 100 steps on 10 runs that it has not seen.
    """
    options.check_writable(out)
    began = time.perf_counter()
    from sgno.cli.catalogue import example
    from sgno.lab.fit import fit
    from sgno.lab.wild import get

    file, runs = out / "burgers.npz", out / "runs"
    out.mkdir(parents=True, exist_ok=True)
    example(file, force=True, cache=cache)
    system = get("burgers").system
    found, rows = {}, []
    for model in _TITLES:
        start = time.perf_counter()
        say(f"Fitting {model} ...", style="dim")
        units = {"dt": system.dt, "length": system.length[0]} if model == "equation" else None
        budget: dict[str, Any] = {"updates": _UPDATES} if model in ("sgno", _NETWORK) else {}
        found[model] = fit(file, model, settings=units, out=runs, **budget)
        rows.append(_row(model, found[model].record, time.perf_counter() - start))
    title = f"Forecasts of {_STEPS} steps from 10 states that no model has seen"
    show_table(console, title, ("model", "error", "steps below 20 %", "parameters", "seconds"), rows)
    step = found["equation"].step
    truth = get("burgers").equation
    say(f"The equation that was found:  {step.equation}")
    say(f"The equation that was solved: {truth}")
    say(_verdict({model: fitted.record["gmean100"] for model, fitted in found.items()}))
    page = _page(runs)
    say(f"{time.perf_counter() - began:.0f} seconds. Look at {page}" if page else "No page was made.")
    if json:
        scores = {model: fitted.record["gmean100"] for model, fitted in found.items()}
        emit_json({"gmean100": scores, "equation": str(step.equation), "page": str(page)})


def _row(model: str, record: dict[str, Any], seconds: float) -> tuple[str, ...]:
    score, stable = record["gmean100"], record["stable_step"]
    numbers = shown(score, 2), f"{stable} of {_STEPS}", f"{record['params_real']:,}", f"{seconds:.0f}"
    return (_TITLES[model], *numbers)


def _verdict(scores: dict[str, float | None]) -> str:
    error = {model: math.inf if score is None else score for model, score in scores.items()}
    best = min(error, key=lambda model: error[model])
    times = error[_NETWORK] / error[best]
    ratio = f", {times:,.0f} times closer than the strongest network" if math.isfinite(times) else ""
    return f"The best forecast is that of {best}: an error of {error[best]:.1e}{ratio}."


def _page(runs: Path) -> Path | None:
    """The page of the report, if what draws it is installed."""
    from importlib.util import find_spec

    if not (find_spec("matplotlib") and find_spec("jinja2")):
        say("The page needs the extra 'report': pip install \".[report]\", then sgno report demo/runs.")
        return None
    from sgno.lab.report import write_report

    return write_report(runs)
