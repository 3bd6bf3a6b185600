"""One page a task, from the catalogue, APEBench's scenario and the store of what was really run."""

import dataclasses
from pathlib import Path
from typing import Any

import task_pictures

from sgno.lab.presets import MAIN_MODELS
from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Group, Row, compare
from sgno.lab.report.models import is_sgno_x, label, order
from sgno.lab.report.runs import read_store
from sgno.lab.report.tables.table import number_text, printed_text
from sgno.lab.store import Store
from sgno.lab.tasks import CARDS, TASKS, Task

# Tables of scores need the room of the table of contents, which these short pages can do without.
_HEAD = "---\nhide: [toc]\n---\n"
_GENERATED = _HEAD + "<!-- Made while the site is built, by docs/make/task_pages.py. -->\n"
# The settings of a scenario that are numbers of its equation.
_NUMBERS = (
    "domain_extent",
    "dt",
    "advection_gamma",
    "advection_coef_vector",
    "diffusion_gamma",
    "diffusion_coef_vector",
    "diffusivity",
    "dispersion_gamma",
    "dispersion_coef",
    "hyp_diffusion_gamma",
    "convection_sc_delta",
    "gradient_norm_delta",
    "injection_mode",
    "injection_scale",
    "drag",
    "num_substeps",
    "num_warmup_steps",
)
_MULTIPLIER = (
    "One step multiplies every Fourier mode by a fixed complex number. A least-squares fit of these numbers "
    "(Linear) therefore solves the task to rounding, without a network."
)
_ELSEWHERE = (
    "Scores of all models are in the [README](../../README.md#the-papers-experiment), and with pictures on "
    "this page of the site that `make docs` builds."
)
_NOTES = {
    "adv1d": _MULTIPLIER,
    "diff1d": _MULTIPLIER,
    "disp1d": _MULTIPLIER,
    "kdv1d": "exponax 0.1.0 keeps only the real part of its phi coefficients, so this reference is of first "
    "order in time, not of second. It is the benchmark's truth all the same and is not changed here.",
    "ks1d": "The unstable band of low modes grows and the product of slopes moves energy to damped modes: "
    "chaos. Any error grows exponentially, so the stable step says more than the last error.",
    "mixdisp2d": _MULTIPLIER + " The paper's grid is 160²; the desk preset runs 64².",
    "kolm2d": "Vorticity of a forced 2D flow. The paper's appendix trains at 64², and its figure there "
    "agrees with its main table, so 64² is the grid here. The reference takes 20 substeps a step.",
    "diagdiff3d": _MULTIPLIER + " The desk preset runs 16³ instead of 32³.",
    "unbaladv3d": _MULTIPLIER + " The desk preset runs 16³ instead of 32³.",
    "advdiff3d": _MULTIPLIER + " The desk preset runs 16³ instead of 32³. APEBench ties the diffusion to the "
    "grid, so at 16³ the state decays below a hundred-thousandth of its start within 100 steps. Errors are "
    "divided by it, and what a network leaves behind outgrows it: read the first twenty steps there.",
}


def nav() -> list[Any]:
    """The entries of the navigation."""
    return [{"Overview": "tasks/index.md"}, *({name: f"tasks/{name}.md"} for name in TASKS)]


def pages(root: Path) -> dict[str, str | bytes]:
    """Path inside the site -> content: an overview, a page a task, and their pictures."""
    comparison, store = compare(read_store(root).runs), Store(root)
    made: dict[str, str | bytes] = {"tasks/index.md": _overview(comparison)}
    for task in TASKS.values():
        rows = [row for row in comparison.rows if row.name == task.name]
        made[f"tasks/{task.name}.md"] = _page(task, rows, store, made)
    return made


def committed() -> dict[str, str]:
    """The same pages without scores and their pictures, for those who read them in the repository."""
    made = {"index.md": _overview(None)}
    return made | {f"{task.name}.md": _page(task, None, None, {}) for task in TASKS.values()}


def _overview(comparison: Comparison | None) -> str:
    """Without a comparison its columns are left out."""
    lines = [
        _GENERATED,
        "# The ten tasks",
        "",
        "The paper's ten tasks, made by APEBench 0.1.1 with exponax 0.1.0. One page each: equation, setting, "
        "pictures, scores. Any other APEBench scenario runs by its name, for example "
        "`apebench:diff_burgers;num_spatial_dims=1`.",
        "",
        "| Task | Equation | Regime | Mechanism | Grid | SGNO, paper's |"
        + ("" if comparison is None else " SGNO, ours | SGNO-X, ours |"),
        "| --- | --- | --- | --- | --- | ---: |" + ("" if comparison is None else " ---: | ---: |"),
    ]
    for name, task in TASKS.items():
        card = CARDS[name]
        ours = []
        if comparison is not None:
            rows = [row for row in comparison.rows if row.name == name]
            ours = [_best_known(rows, model) for model in ("sgno", "sgno-x")]
        printed = paper.GMEAN100[name]["sgno"]
        lines.append(
            f"| [{name}]({name}.md) | {card.equation} | {card.regime} | {card.mechanism} | "
            f"{_grid(task.num_points, task.num_spatial_dims)} | "
            + " | ".join(["–" if printed is None else printed_text(printed), *ours])
            + " |"
        )
    lines += [
        "",
        "Median GMean100 over seeds, lower is better; † marks a grid or a budget other than the paper's. "
        "GMean100 is the geometric mean over steps 1 to 100 of the mean nRMSE over the test trajectories.",
    ]
    return "\n".join(lines)


def _best_known(rows: list[Row], model: str) -> str:
    """The score of the row nearest to the paper's setting, or that there is none."""
    found = sorted((row for row in rows if model in row.groups), key=lambda row: not row.as_paper)
    if not found:
        return "not run"
    return number_text(found[0].groups[model].score.median) + ("" if found[0].as_paper else " †")


def _page(task: Task, rows: list[Row] | None, store: Store | None, made: dict[str, str | bytes]) -> str:
    """Without rows and a store it points to where the scores are."""
    card = CARDS[task.name]
    lines = [
        _GENERATED,
        f"# {task.name}",
        "",
        f"    {card.equation}",
        "",
        f"{card.regime} regime; what it tests: {card.mechanism}. {_NOTES[task.name]}",
        "",
        f"![One trajectory of {task.name}, by the reference solver]({task.name}-truth.webp)",
        "",
        "## Setting",
        "",
        "| Setting | Value |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in _setting(task)),
        "",
    ]
    if rows is None or store is None:
        lines += [_ELSEWHERE, ""]
        rows = []
    elif not rows:
        lines += ["## Scores", "", "**Not run** so far in the results that come with the package.", ""]
    for row in rows:
        lines += _scores(row)
        assert store is not None
        picture = task_pictures.predictions(row, store)
        if picture is not None:
            path = f"tasks/{task.name}-{row.id}.png"
            made[path] = picture
            lines += [f"![What the models predict on {row.title}]({Path(path).name})", ""]
    printed = ", ".join(
        f"{label(model)} {'–' if value is None else printed_text(value)}"
        for model, value in paper.GMEAN100[task.name].items()
    )
    lines += [
        f"The paper's medians for {task.name} (not ours): {printed}.",
        "",
        "## Run it",
        "",
        "```sh",
        run_it(task.name),
        "```",
    ]
    return "\n".join(lines)


def run_it(name: str) -> str:
    """The command of a task's page."""
    return f"sgno run {name} --model linear    # or any other of `sgno models`"


def _setting(task: Task) -> list[tuple[str, str]]:
    """Data and equation in numbers."""
    import apebench

    scenario = apebench.scenarios.scenario_dict[task.scenario]
    defaults = {field.name: field.default for field in dataclasses.fields(scenario)}
    chosen = {**defaults, **dict(task.settings)}
    return [
        ("APEBench scenario", f"`{task.scenario}`"),
        ("Grid", _grid(task.num_points, task.num_spatial_dims) + ", periodic"),
        (
            "Training data",
            f"{task.num_train_samples} trajectories of {task.train_steps} steps, seed {task.train_seed}",
        ),
        (
            "Test data",
            f"{task.num_test_samples} trajectories of {task.test_steps} steps, seed {task.test_seed}",
        ),
        ("Initial states", f"`{chosen['ic_config']}`"),
        *((f"`{name}`", f"{chosen[name]}") for name in _NUMBERS if chosen.get(name) not in (None, 0)),
    ]


def _scores(row: Row) -> list[str]:
    lines = [
        f"## Scores: {row.setting}",
        "",
        "| Model | Seeds | GMean100 | lowest to highest | Stable step | Non-finite runs | Parameters | "
        "Training, s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    wanted = sorted({*MAIN_MODELS, *row.groups}, key=order)
    lines += [_score_line(model, row.groups[model]) for model in wanted if model in row.groups]
    missing = [label(model) for model in wanted if model not in row.groups and not is_sgno_x(model)]
    lines += [
        "",
        "GMean100: the median over seeds. Stable step: how many steps the mean nRMSE stays at or below 0.2, "
        f"of {row.task['test_steps']}. Parameters: complex numbers counted once / in real numbers.",
        "",
    ]
    if missing:
        lines += [f"Not run at this setting: {', '.join(missing)}.", ""]
    return lines


def _score_line(model: str, group: Group) -> str:
    scores = sorted(run.scores.gmean100 for run in group.runs)
    bad = sum(run.scores.nonfinite_steps > 0 for run in group.runs)
    spread = "" if len(scores) == 1 else f"{number_text(scores[0])} to {number_text(scores[-1])}"
    return (
        f"| {label(model)} | {len(group.runs)} | {number_text(group.score.median)} | {spread} | "
        f"{group.stable_step.median:g} | {bad} | {_counts(group)} | "
        f"{group.train_seconds.median:.0f} |"
    )


def _counts(group: Group) -> str:
    """Both counts where they differ."""
    both = dict.fromkeys((f"{group.first.params:,}", f"{group.first.params_real:,}"))
    return " / ".join(both)


def _grid(points: int, dims: int) -> str:
    return f"{points}{['', ' points', '²', '³'][dims]}"


if __name__ == "__main__":
    for name, text in committed().items():
        (Path(__file__).parents[1] / "tasks" / name).write_text(text + "\n")
