"""Runs that differ in nothing but the seed, and the rows of comparable groups that tables are made of.

A row is one data set and one training budget. Models of the same row saw the same data and took
the same number of updates; a model fitted in closed form takes none and stands in every row of its data.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from sgno.io.files import content_id
from sgno.lab.report import paper
from sgno.lab.report.models import is_baseline, is_network_baseline, order
from sgno.lab.report.runs import DIAGNOSTICS, Run
from sgno.lab.report.statistics import Band, Spread, band, spread
from sgno.lab.tasks import APEBENCH_PREFIX, TASKS

_BUDGET = {
    "updates": paper.UPDATES,
    "batch_size": paper.BATCH_SIZE,
    "unroll": 1,
    "pushforward": False,
    "noise": 0.0,
    "precision": "float32",
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one model that differ in nothing but the seed, in the order of their seeds."""

    id: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def model(self) -> str:
        return self.first.model

    @functools.cached_property
    def score(self) -> Spread:
        return spread(run.scores.gmean100 for run in self.runs)

    @functools.cached_property
    def stable_step(self) -> Spread:
        return spread(run.scores.stable_step for run in self.runs)

    @functools.cached_property
    def diagnostics(self) -> dict[str, float]:
        """The median over seeds of each spectral diagnostic."""
        return {
            name: spread(run.scores.diagnostics[name] for run in self.runs).median for name in DIAGNOSTICS
        }

    @functools.cached_property
    def curve(self) -> Band:
        return band([run.scores.mean_nrmse for run in self.runs])

    @functools.cached_property
    def train_seconds(self) -> Spread:
        return spread(run.train_seconds for run in self.runs)

    @functools.cached_property
    def seconds(self) -> Spread:
        """Of the whole job: data, start, training, scoring."""
        return spread(run.seconds for run in self.runs)

    @functools.cached_property
    def seconds_per_update(self) -> float | None:
        known = [run.seconds_per_update for run in self.runs if run.seconds_per_update is not None]
        return spread(known).median if known else None

    @functools.cached_property
    def transfer(self) -> dict[int, tuple[Spread, Spread]]:
        """Grid points -> spreads of GMean100 and stable step of the same weights on that grid."""
        points = sorted({n for run in self.runs for n in run.transfer})
        return {
            n: (
                spread(run.transfer[n].gmean100 for run in self.runs if n in run.transfer),
                spread(run.transfer[n].stable_step for run in self.runs if n in run.transfer),
            )
            for n in points
        }


@dataclasses.dataclass(frozen=True)
class Row:
    """One data set and one budget, with the group of each model that was run there."""

    id: str
    task: Mapping[str, Any]
    budget: Mapping[str, Any] | None
    groups: Mapping[str, Group]

    @property
    def name(self) -> str:
        return self.task["name"]

    @property
    def label(self) -> str:
        """The name as it is shown: a scenario of APEBench's is shortened to its key and what was set."""
        dims = f";num_spatial_dims={self.dims}"
        return self.name.removeprefix(APEBENCH_PREFIX).replace(dims, f" {self.dims}D")

    @property
    def dims(self) -> int:
        return self.task["num_spatial_dims"]

    @property
    def points(self) -> int:
        return self.task["num_points"]

    @property
    def as_paper(self) -> bool:
        """Whether data and budget are the paper's, so that its numbers compare like with like."""
        if self.name not in TASKS:
            return False
        same_data = _without_name(self.task) == TASKS[self.name].data_settings()
        return same_data and (self.budget is None or dict(self.budget) == _BUDGET)

    @property
    def setting(self) -> str:
        """Grid and budget in words, and whatever departs from the protocol."""
        words = [task_grid(self.task)]
        if self.budget is not None:
            words.append(f"{self.budget['updates']:,} updates")
        words += _departures(self.task, self.budget or {})
        return ", ".join(words)[:200]

    @property
    def seeds(self) -> str:
        """How many seeds the trained models have: a number, or the fewest and the most."""
        counts = sorted({len(g.runs) for g in self.groups.values() if g.first.train["updates"] > 0})
        if not counts:
            return "–"
        return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"

    @property
    def updates(self) -> str:
        return "none" if self.budget is None else f"{self.budget['updates']:,}"

    @property
    def title(self) -> str:
        return f"{self.label} ({self.setting})"

    def best(self, *, networks_only: bool = False) -> Group | None:
        """The strongest baseline of the row; a non-finite one only if all are."""
        wanted = is_network_baseline if networks_only else is_baseline
        groups = [group for model, group in self.groups.items() if wanted(model)]
        return min(groups, key=lambda group: group.score.median, default=None)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All rows of a store in the order of the catalogue, and all groups, also those that no row shows."""

    rows: tuple[Row, ...]
    groups: tuple[Group, ...]

    @property
    def not_run(self) -> tuple[str, ...]:
        """Tasks of the paper with no run at all."""
        present = {row.name for row in self.rows}
        return tuple(name for name in TASKS if name not in present)

    @property
    def entries(self) -> tuple[Row | str, ...]:
        """Rows and the names of tasks that were not run, in the order of the catalogue."""
        named = [*((row.name, row) for row in self.rows), *((name, name) for name in self.not_run)]
        return tuple(entry for _, entry in sorted(named, key=lambda item: _task_order(item[0])))


def compare(runs: Iterable[Run]) -> Comparison:
    """Group runs by settings, and groups by data and budget."""
    by_settings: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs:
        seeds = by_settings.setdefault((run.model, run.settings_id), {})
        # The same training twice differs in the grids it was also scored on: keep the one that has more.
        if run.seed not in seeds or len(run.transfer) > len(seeds[run.seed].transfer):
            seeds[run.seed] = run
    groups = [
        Group(content_id([model, settings], 12), tuple(seeds[seed] for seed in sorted(seeds)))
        for (model, settings), seeds in by_settings.items()
    ]
    groups.sort(key=lambda group: (_task_order(group.first.task["name"]), order(group.model), group.id))
    return Comparison(tuple(sorted(_rows(groups), key=_row_order)), tuple(groups))


def _rows(groups: list[Group]) -> Iterable[Row]:
    data: dict[str, list[Group]] = {}
    for group in groups:
        data.setdefault(content_id(dict(group.first.task)), []).append(group)
    for data_id, members in data.items():
        closed = [group for group in members if group.first.train["updates"] == 0]
        budgets: dict[str, list[Group]] = {}
        for group in members:
            if group.first.train["updates"] > 0:
                budgets.setdefault(content_id(budget_of(group.first.train)), []).append(group)
        task = members[0].first.task
        for budget_id, trained in budgets.items():
            budget = budget_of(trained[0].first.train)
            yield Row(content_id([data_id, budget_id], 12), task, budget, _choose([*closed, *trained]))
        if not budgets:
            yield Row(data_id[:12], task, None, _choose(closed))


def budget_of(train: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal for trainings to compare. Rate and loss belong to a model's recipe."""
    return {name: train.get(name, default) for name, default in _BUDGET.items()}


def _choose(groups: list[Group]) -> dict[str, Group]:
    """One group a model: the paper's setting if there is one, then the most seeds, then the latest."""
    chosen: dict[str, Group] = {}
    for group in sorted(groups, key=lambda g: (_is_papers(g), len(g.runs), max(r.finished for r in g.runs))):
        chosen[group.model] = group
    return dict(sorted(chosen.items(), key=lambda item: order(item[0])))


def _is_papers(group: Group) -> bool:
    run = group.first
    if run.model not in paper.CONFIGS:
        return False
    wanted = paper.CONFIGS[run.model][run.task["num_spatial_dims"] - 1]
    return all(run.config.get(name) == value for name, value in wanted.items())


def _without_name(task: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in task.items() if key != "name"}


def grid_text(points: int, dims: int) -> str:
    return f"{points} points" if dims == 1 else f"{points}{'²' if dims == 2 else '³'}"


def task_grid(task: Mapping[str, Any]) -> str:
    """The grid of a task in words; a user's own axes may differ."""
    axes = task.get("points") or []
    if len(set(axes)) > 1:
        return " × ".join(map(str, axes))
    return grid_text(task["num_points"], task["num_spatial_dims"])


def _departures(task: Mapping[str, Any], budget: Mapping[str, Any]) -> list[str]:
    words = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in budget.items()
        if name != "updates" and value != _BUDGET[name]
    ]
    if task["name"] in TASKS:
        standard = TASKS[task["name"]].data_settings()
        words += [
            f"{name.replace('num_', '').replace('_', ' ')} {task[name]}"
            for name in (
                "num_train_samples",
                "train_steps",
                "num_test_samples",
                "test_steps",
                "train_seed",
                "test_seed",
            )
            if name in task and task[name] != standard[name]
        ]
    return words


def _task_order(name: str) -> tuple[int, str]:
    names = list(TASKS)
    return (names.index(name) if name in names else len(names)), name


def _row_order(row: Row) -> tuple:
    updates = row.budget["updates"] if row.budget else 0
    return (*_task_order(row.name), not row.as_paper, -row.points, -updates, row.id)
