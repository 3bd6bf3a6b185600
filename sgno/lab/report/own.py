"""The page of own data: forecast first, then models beside persistence, equation, horizon, data."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from sgno.io.files import read_sealed
from sgno.lab.report.groups import Comparison, Group, Row, task_grid
from sgno.lab.report.models import PERSISTENCE, label, order
from sgno.lab.report.runs import Contents
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.table import NOTHING, Cell, Column, Table, name_cell, number_cell, number_text
from sgno.lab.store import Store
from sgno.lab.tasks import APEBENCH_PREFIX, TASKS

Words = Annotated[str, msgspec.Meta(max_length=2000)]


class Card(NamedTuple):
    """One figure at the head of a page."""

    name: str
    value: str
    more: str


class _Tried(msgspec.Struct):
    model: Words
    outcome: Words
    error: float | None = None
    seconds: float = 0.0
    reason: Words | None = None


class _Search(msgspec.Struct):
    """What `sgno fit` tried, as `sgno.lab.auto` wrote it."""

    chosen: Words
    job: Words
    tried: Annotated[list[_Tried], msgspec.Meta(max_length=100)]
    minutes: float
    noise: float = 0.0


class _Horizon(msgspec.Struct):
    level: float
    steps: int
    probability: float
    requested: float
    trajectories: int
    length: int
    at: Annotated[list[int], msgspec.Meta(min_length=1, max_length=10_000)]
    bound: list[float | None]


class _Equation(msgspec.Struct):
    text: list[Words]
    terms: list[Words] = []
    found: bool | None = None
    notes: list[Words] = []


class _Findings(msgspec.Struct):
    horizon: _Horizon | None = None
    equation: _Equation | None = None


def is_own(contents: Contents) -> bool:
    """Whether a folder holds a user's own data alone, not the paper's tasks or scenarios of APEBench."""
    names = {run.task["name"] for run in contents.runs}
    known = any(name in TASKS or name.startswith(APEBENCH_PREFIX) for name in names)
    return bool(names) and not known and all("content" in run.task for run in contents.runs)


def own_page(
    contents: Contents, comparison: Comparison, store: Store, data: dict[str, Any]
) -> dict[str, Any]:
    """What the template shows, and `data`, the numbers for its script, with the best model put first."""
    row = max(comparison.rows, key=lambda row: len(row.groups))
    notes: list[str] = []
    search = _newest_search(store, notes)
    best = min(row.groups.values(), key=lambda group: group.score.median)
    if search is not None:
        best = row.groups.get(search.chosen, best)
    findings = _findings(store, best, notes)
    equations = [_findings(store, group, notes).equation for group in row.groups.values()]
    horizon = findings.horizon
    for sample in data["samples"]:
        sample["first"] = best.model
        sample["rival"] = PERSISTENCE if PERSISTENCE in sample["predictions"] else sample["rival"]
    data["horizon"] = None if horizon is None else msgspec.to_builtins(horizon)
    persistence = row.groups.get(PERSISTENCE)
    return {
        "title": f"Forecasts of {row.name}",
        "verdict": _verdict(best, persistence, row.task["test_steps"]),
        "cards": list(_cards(best, persistence, horizon, row.task["test_steps"])),
        "models": _models_table(row, best, search),
        "equation": findings.equation or next((e for e in equations if e is not None), None),
        "horizon": None
        if horizon is None
        else {"words": _words(horizon), "trajectories": horizon.trajectories},
        "facts": _facts(row, search),
        "advice": list(_advice(row, best, search, horizon, store)),
        "channels": row.task.get("channels", 1),
        "dims": row.dims,
        "own_notes": notes,
    }


def _newest_search(store: Store, notes: list[str]) -> _Search | None:
    for path in sorted(store.root.glob("auto/*.json"), key=lambda p: p.stat().st_mtime, reverse=True):
        try:
            return msgspec.convert(read_sealed(path), _Search)
        except (ValueError, OSError) as error:
            notes.append(f"{path.name}: not a search for a model ({error}).")
    return None


def _findings(store: Store, group: Group, notes: list[str]) -> _Findings:
    """Horizon and equation of a group's first seed, as far as its record has them."""
    try:
        return msgspec.convert(store.record(group.first.id), _Findings)
    except (ValueError, OSError) as error:
        notes.append(f"{label(group.model)}: horizon and equation cannot be read ({error}).")
        return _Findings()


def _times(best: Group, persistence: Group | None) -> float | None:
    return None if persistence is None else ratio(best.score.median, persistence.score.median)


def _verdict(best: Group, persistence: Group | None, steps: int) -> str:
    over = f"over {min(steps, 100)} steps of trajectories it has not seen"
    if not math.isfinite(best.score.median):
        return f"No model stays finite {over}. The best is {label(best.model)}."
    text = (
        f"{label(best.model)} forecasts these data with an error of {number_text(best.score.median)} {over}"
    )
    share = _times(best, persistence)
    if share is None or best.model == PERSISTENCE:
        return f"{text}."
    if share >= 0.9:
        return f"{text}: hardly better than saying that nothing changes."
    return f"{text}, {number_text(1 / share)} times less than by saying that nothing changes."


def _cards(best: Group, persistence: Group | None, horizon: _Horizon | None, steps: int) -> Iterator[Card]:
    yield Card("Best model", label(best.model), f"of the models below, {best.first.params_real:,} numbers")
    over = f"geometric mean of the nRMSE over {min(steps, 100)} steps"
    yield Card("Error", number_text(best.score.median), over)
    if persistence is not None:
        yield Card("Persistence", number_text(persistence.score.median), "if nothing changed")
    if horizon is not None:
        more = "or more, " if horizon.steps >= horizon.length else ""
        chance = f"below {100 * horizon.level:.0f} % error with {100 * horizon.probability:.0f} % probability"
        yield Card("Horizon", f"{horizon.steps} steps", more + chance)


def _words(h: _Horizon) -> str:
    end = ", where the held-out trajectories end" if h.steps >= h.length else ""
    text = (
        f"The error stays below {100 * h.level:g} % for {h.steps} steps{end}, with a probability of at least "
        f"{100 * h.probability:.0f} %."
    )
    if h.probability < h.requested:
        needed = math.ceil(h.requested / (1 - h.requested) - 1e-9)
        text += f" To claim {100 * h.requested:.0f} % takes {needed} held-out trajectories."
    return text


def _models_table(row: Row, best: Group, search: _Search | None) -> Table:
    persistence = row.groups.get(PERSISTENCE)
    rows: list[tuple[Cell, ...]] = [
        (
            name_cell(label(group.model), *(("chosen",) if group is best else ())),
            number_cell(group.score.median, "best" if group is best else ""),
            number_cell(_times(group, persistence)),
            number_cell(group.curve.median[-1]),
            Cell(f"{group.stable_step.median:g}", group.stable_step.median),
            Cell(f"{group.first.train['updates']:,}", group.first.train["updates"]),
            Cell(str(len(group.runs)), len(group.runs)),
            number_cell(group.seconds.median),
        )
        for group in sorted(row.groups.values(), key=lambda g: (g.score.median, order(g.model)))
    ]
    for tried in search.tried if search else []:
        if tried.model not in row.groups:
            name = name_cell(label(tried.model), tried.reason or tried.outcome)
            rows.append((name, *(NOTHING,) * 7))
    return Table(
        "models",
        "Models",
        "All on the same unseen trajectories: geometric mean of the error over the first 100 steps, as a "
        "share of persistence's (the forecast that nothing changes), at the last step, and the step up "
        "to which the mean error stays at or below 20 %. Other trajectories decided which was chosen.",
        (
            Column("Model", numeric=False),
            Column("Error"),
            Column("/ persistence"),
            Column("Last step"),
            Column("Steps below 20 %"),
            Column("Updates"),
            Column("Seeds"),
            Column("Seconds in all"),
        ),
        tuple(rows),
    )


def _facts(row: Row, search: _Search | None) -> list[tuple[str, str]]:
    task = row.task
    channels = task.get("channels", 1)
    facts = [
        ("Grid", f"{task_grid(task)}, {channels} channel{'s' if channels != 1 else ''}"),
        (
            "To learn from",
            f"{task.get('num_train_samples', '?')} trajectories, {task.get('train_steps', '?')} steps",
        ),
        (
            "To score on",
            f"{task.get('num_test_samples', '?')} trajectories, {task['test_steps']} steps, unseen",
        ),
    ]
    if search is not None:
        noise = f"about {number_text(search.noise)} of their size" if search.noise > 0 else "none to speak of"
        facts.append(("Noise", noise))
    for name, given in (
        ("Files", task.get("files")),
        ("Inputs", task.get("inputs")),
        ("Walls", task.get("boundary")),
    ):
        if given:
            facts.append((name, ", ".join(map(str, given)) if isinstance(given, list) else str(given)))
    return facts


def _advice(
    row: Row, best: Group, search: _Search | None, horizon: _Horizon | None, store: Store
) -> Iterator[tuple[str, str]]:
    """What to do now: a sentence and, where there is one, a command."""
    file = (row.task.get("files") or ["DATA"])[0]
    weights = store.weights(best.first.id)
    if weights.is_file():
        yield (
            "Forecast as far as you like:",
            f"sgno rollout {weights} --initial {file} --steps 1000 --out forecast.npz",
        )
    left = [t.model for t in search.tried if t.outcome == "out of time"] if search else []
    if search and left:
        minutes = max(2, math.ceil(3 * search.minutes))
        yield (
            f"Not tried for lack of time: {', '.join(map(label, left))}.",
            f"sgno fit {file} --minutes {minutes}",
        )
    share = _times(best, row.groups.get(PERSISTENCE))
    if share is not None and share > 0.5 and best.model != PERSISTENCE:
        yield (
            (
                "Little is gained over persistence. If one frame does not determine the next, give the "
                "model earlier ones (--history 2); if parameters or forcings differ, name them (--inputs); "
                "if there are walls, say so (--boundary); frames closer in time help too."
            ),
            "",
        )
    if "equation" in row.groups:
        yield "The equation in your own units:", f"sgno discover {file} --dt DT --length LENGTH"
    if horizon and horizon.probability < horizon.requested:
        yield "More held-out trajectories make the horizon's claim stronger:", f"sgno fit {file} --test 0.2"
    if PERSISTENCE not in row.groups:
        yield (
            "See how the forecast compares with saying that nothing changes:",
            f"sgno fit {file} --model persistence",
        )
