"""One HTML file with everything in it: tables, interactive pictures, and where every number comes from."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from sgno.io.commit import write_bytes
from sgno.lab.report import paper
from sgno.lab.report.figures.ratios import frontier_figure
from sgno.lab.report.figures.style import encode, styled
from sgno.lab.report.groups import Comparison, compare
from sgno.lab.report.models import SGNO, label
from sgno.lab.report.own import Card, is_own, own_page
from sgno.lab.report.payload import packed, page_data
from sgno.lab.report.provenance import environments, group_settings, runs_table
from sgno.lab.report.runs import Contents, read_store
from sgno.lab.report.statistics import ratio, spread
from sgno.lab.report.tables import all_tables
from sgno.lab.report.tables.table import number_text
from sgno.lab.report.text import table_html
from sgno.lab.store import Store

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(store_root: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a store as one self-contained HTML file.

    **Arguments:**

    - `store_root`: the folder that `sgno run` or `sgno reproduce` filled.
    - `out`: the file to write; `report.html` in the store if not given.

    **Returns:**

    The path of the file.

    **Raises:** `InputError` if there is no store or nothing in it.
    """
    root = Path(store_root)
    contents = read_store(root)
    out = root / "report.html" if out is None else Path(out)
    write_bytes(out, [render(contents, Store(root)).encode()])
    return out


def render(contents: Contents, store: Store) -> str:
    """The page as text. The same store gives the same text."""
    comparison = compare(contents.runs)
    data = page_data(comparison, store)
    labels, found = environments(contents.runs)
    scripts = [(_TEMPLATES / name).read_text() for name in ("chart.js", "report.js")]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    notes = [*contents.unreadable, *data.pop("notes")]
    if is_own(contents):
        template, special = "own.html.j2", own_page(contents, comparison, store, data)
        notes += special.pop("own_notes")
    else:
        template = "report.html.j2"
        special = {
            "title": _title(store),
            "lede": _lede(contents),
            "cards": _cards(contents, comparison),
            "tables": all_tables(comparison, contents.frontier),
            "frontier": _frontier(contents),
            "source": paper.SOURCE,
        }
    return environment.get_template(template).render(
        **special,
        table_html=table_html,
        runs=runs_table(contents.runs, labels),
        environments=found,
        groups=[group_settings(group) for group in comparison.groups],
        failures=[_failure(failure) for failure in contents.failures],
        notes=notes,
        serious=bool(contents.unreadable),
        data=packed(data),
        policy=_policy(*scripts),
        css=Markup((_TEMPLATES / "report.css").read_text()),
        scripts=[Markup(script) for script in scripts],
    )


def _frontier(contents: Contents) -> str:
    """The figure against the solver as the address of an image that is part of the page, or nothing."""
    if contents.frontier is None:
        return ""
    with styled():
        svg = encode(frontier_figure(contents.frontier), "svg")
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _title(store: Store) -> str:
    return f"SGNO results: {store.root.resolve().name}"


def _lede(contents: Contents) -> str:
    if not contents.runs:
        return "No finished run."
    dates = sorted(run.finished[:10] for run in contents.runs)
    tasks = {run.task["name"] for run in contents.runs}
    models = {run.model for run in contents.runs}
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return (
        "Surrogates of time-dependent PDEs, trained to predict one step and rolled out on their own "
        f"predictions. {_count(len(contents.runs), 'finished run')} of {_count(len(models), 'model')} on "
        f"{_count(len(tasks), 'task')}, {when}."
    )


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _cards(contents: Contents, comparison: Comparison) -> list[Card]:
    """What a reader wants to know first, each with what it is counted over."""
    contested = [row for row in comparison.rows if SGNO in row.groups and row.best(networks_only=True)]
    ratios = []
    for row in contested:
        best = row.best(networks_only=True)
        ratios.append(ratio(row.groups[SGNO].score.median, best.score.median) if best else None)
    known = [value for value in ratios if value is not None]
    reproduced = [
        against
        for row in comparison.rows
        if row.as_paper
        for model, group in row.groups.items()
        if (against := ratio(group.score.median, paper.GMEAN100[row.name].get(model))) is not None
    ]
    diverged = sum(not math.isfinite(run.scores.gmean100) for run in contents.runs)
    none = "–"
    return [
        Card(
            "SGNO ahead of every network",
            f"{sum(value < 1 for value in known)} of {len(contested)}" if contested else none,
            "rows where SGNO and a network baseline ran",
        ),
        Card(
            "SGNO / best network",
            number_text(spread(known).median) if known else none,
            "median over those rows; the paper's ten: 0.252",
        ),
        Card(
            "Ours / paper",
            number_text(spread(reproduced).median) if reproduced else none,
            f"median over {_count(len(reproduced), 'number')} at the paper's data and budget",
        ),
        Card("Non-finite runs", f"{diverged} of {len(contents.runs)}", "within the first 100 steps"),
        Card(
            "Tasks not run",
            f"{len(comparison.not_run)} of {len(paper.GMEAN100)}",
            ", ".join(comparison.not_run) or "all of the paper's tasks have runs",
        ),
    ]


def _failure(failure: Mapping[str, Any]) -> dict[str, str]:
    job = failure.get("job")
    job = job if isinstance(job, dict) else {}
    task = job.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    model = job.get("model_name")
    who = label(str(model)) if model else "unknown model"
    title = f"{name or 'unknown task'}, {who}, seed {job.get('seed', '?')}"
    rest = {key: value for key, value in failure.items() if key != "job"}
    return {"title": title, "error": str(failure.get("error") or json.dumps(rest, default=str))[:4000]}


def _policy(*scripts: str) -> str:
    """Only these very scripts may run, and nothing may be loaded: whatever a store contains stays text."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
