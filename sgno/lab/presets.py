"""What to run: presets of tasks x models x seeds x settings, and the jobs that they mean."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sgno.errors import InputError, unknown_name
from sgno.lab.job import Job
from sgno.lab.recipe import TrainConfig
from sgno.lab.tasks import TASKS, Task, get_task
from sgno.registry import MODELS, get_model, model_names

ABLATIONS = model_names("ablation", "sgno")
SGNO_X_ABLATIONS = model_names("ablation", "sgno-x")
ABLATION_TASKS = ("adv1d", "diff1d", "disp1d", "ks1d", "kolm2d")
_BEST_RECIPE = "sgno-x-start"
MAIN_MODELS = tuple(name for name, model in MODELS.items() if model.role not in ("ablation", "recipe"))
TRANSFER_TASK, TRANSFER_MODELS = "kolm2d", ("sgno", "sgno-x", _BEST_RECIPE)
# A shock, a front, two coupled channels, a cubic term, and two coupled channels with a cubic term: the five
# that SGNO-X was tried on while it was developed, none left out.
BEYOND_TASKS = (
    "apebench:diff_burgers;num_spatial_dims=1",
    "apebench:diff_fisher;num_spatial_dims=1",
    "apebench:diff_burgers;num_spatial_dims=2",
    "apebench:phy_sh;num_spatial_dims=2",
    "apebench:phy_gs;num_spatial_dims=2",
)


class TaskPlan(NamedTuple):
    """One task and the models on it, all with the same effort.

    - `train`: options of `TrainConfig.for_model` for every model.
    - `settings`: by model name, fields of its config to replace.
    - `transfer`: by model name, finer grids to score the same weights on.
    """

    task: Task
    models: tuple[str, ...]
    seeds: int
    train: Mapping[str, Any] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}
    transfer: Mapping[str, tuple[int, ...]] = {}


class Effort(NamedTuple):
    """What every model may spend on a task: seeds, options of the task (data), options of the training."""

    seeds: int
    task: Mapping[str, Any] = {}
    train: Mapping[str, Any] = {}


class Entry(NamedTuple):
    """Models on tasks; `seeds` and `train` replace what the preset's budget says."""

    tasks: tuple[str, ...]
    models: tuple[str, ...]
    seeds: int | None = None
    train: Mapping[str, Any] = {}


class Preset(NamedTuple):
    """Efforts by number of dimensions, finer grids for the resolution transfer, smaller models if any.

    `estimate_seconds` is how long may be spent on measuring before the start. `optimise` is whether programs
    are worth the time that compiling them well takes.
    """

    name: str
    summary: str
    entries: tuple[Entry, ...]
    efforts: Mapping[int, Effort]
    transfer_points: tuple[int, ...]
    estimate_seconds: float
    settings: Mapping[str, Mapping[str, Any]] = {}
    optimise: bool = True


_TINY = {"num_train_samples": 4, "train_steps": 5, "num_test_samples": 2, "test_steps": 6}
_TINY_TRAIN = {"updates": 4, "batch_size": 4}
# One block or level of everything: nearly all of a tiny job's time is compiling, which grows with depth.
_TINY_MODELS = {
    **{name: {"num_modes": 4, "num_blocks": 1} for name in ("sgno", *ABLATIONS)},
    "sgno-matched": {"width": 3, "num_modes": 4, "num_blocks": 1},
    "conv": {"network": "Conv;8;1;relu"},
    "res": {"network": "Res;8;1;relu"},
    "unet": {"network": "UNet;4;1;relu"},
    "dil": {"network": "Dil;1;8;1;relu"},
    "fno": {"network": "FNO;4;4;1;gelu"},
    "cno": {"channel_multiplier": 4, "num_levels": 1, "num_residual": 0, "latent": 8},
    **{
        name: {"degree": 2, "max_terms": 1, "stages": 2, "inner_steps": 1, "forcing": False}
        for name in ("sgno-x", _BEST_RECIPE, *SGNO_X_ABLATIONS)
    },
}

_PAPER = (Entry(tuple(TASKS), MAIN_MODELS), Entry(ABLATION_TASKS, ABLATIONS))
_ONE_DIMENSION = tuple(name for name, task in TASKS.items() if task.num_spatial_dims == 1)
_BEYOND = (
    Entry(tuple(TASKS), ("sgno-x", _BEST_RECIPE, "linear", "persistence")),
    Entry(_ONE_DIMENSION, SGNO_X_ABLATIONS, seeds=3),
    Entry(("kolm2d",), ("sgno-x", *SGNO_X_ABLATIONS), seeds=1, train={"updates": 2_000}),
    Entry(BEYOND_TASKS[:2], ("sgno-x", "fno", "unet", "linear", "persistence"), seeds=3),
    Entry(
        BEYOND_TASKS[2:],
        ("sgno-x", "fno", "unet", "linear", "persistence"),
        seeds=1,
        train={"updates": 2_000},
    ),
)

_THREE_DIMENSIONS = tuple(name for name, task in TASKS.items() if task.num_spatial_dims == 3)
# The most important first. In 3D the other networks take 11 to 31 hours each on two cores by this budget.
_PAPER64 = (
    Entry(("kolm2d", "mixdisp2d"), ("sgno", "persistence")),
    Entry(_THREE_DIMENSIONS, ("sgno", "fno", "persistence")),
    Entry(_ONE_DIMENSION, ("sgno", "persistence")),
    Entry(("kolm2d", "mixdisp2d"), ("fno", "cno", "dil", "unet", "conv", "res"), seeds=1),
)

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "smoke",
            "every task and every model, tiny: does everything work?",
            (*_PAPER, Entry(("ks1d",), (_BEST_RECIPE, *SGNO_X_ABLATIONS))),
            {
                1: Effort(1, {"num_points": 32, **_TINY}, _TINY_TRAIN),
                2: Effort(1, {"num_points": 16, **_TINY}, _TINY_TRAIN),
                3: Effort(1, {"num_points": 8, **_TINY}, _TINY_TRAIN),
            },
            transfer_points=(24,),
            estimate_seconds=5.0,
            settings=_TINY_MODELS,
            optimise=False,
        ),
        Preset(
            "desk",
            "1D: full protocol, 3 seeds; 2D: 64², 2,000 updates, 1 seed; 3D: 16³, 1,000 updates, 1 seed",
            _PAPER,
            {
                1: Effort(3),
                2: Effort(1, {"num_points": 64}, {"updates": 2_000}),
                3: Effort(1, {"num_points": 16}, {"updates": 1_000}),
            },
            transfer_points=(128, 256),
            estimate_seconds=90.0,
        ),
        Preset(
            "paper",
            "the paper's numbers: 50 seeds in 1D, 20 in 2D and 3D, 10,000 updates, each task's own grid",
            _PAPER,
            {1: Effort(50), 2: Effort(20), 3: Effort(20)},
            transfer_points=(128, 256),
            estimate_seconds=180.0,
        ),
        Preset(
            "paper64",
            "10,000 updates on one machine: SGNO with 20 seeds in 1D, 3 in 2D (64²), 1 in 3D; FNO "
            "in 3D and the networks in 2D with 1",
            _PAPER64,
            {1: Effort(20), 2: Effort(3, {"num_points": 64}), 3: Effort(1)},
            transfer_points=(128, 256),
            estimate_seconds=90.0,
        ),
        Preset(
            "beyond",
            "SGNO-X: the ten tasks by the paper's budget (5 seeds in 1D, 3 in 2D at 64² and 3D), its "
            "best recipe, its ablations, five further scenarios",
            _BEYOND,
            {1: Effort(5), 2: Effort(3, {"num_points": 64}), 3: Effort(3)},
            transfer_points=(128, 256),
            estimate_seconds=60.0,
        ),
    )
}


def get_preset(name: str) -> Preset:
    """A preset by name. **Raises:** `InputError` listing the known ones."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]


def preset_plans(
    preset: Preset,
    *,
    tasks: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seeds: int | None = None,
) -> tuple[TaskPlan, ...]:
    """The plans of a preset, or of a choice from it.

    **Arguments:**

    - `tasks`: names, or `apebench:NAME;key=value`; all ten by default.
    - `models`: names or APEBench network strings, on every chosen task: by the budget that the preset gives
        them there, or the task's first one. By default the comparison's, and the ablations on their five
        tasks.
    - `seeds`: the number of seeds instead of the preset's.

    **Raises:** `InputError` for an unknown task or fewer seeds than one.
    """
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds={seeds} must be at least 1.")
    entries = preset.entries
    if tasks:
        # A task that the preset does not name is run as its first ones are.
        known = {name for entry in entries for name in entry.tasks}
        unnamed = tuple(name for name in tasks if name not in known)
        entries = (*entries, Entry(unnamed, entries[0].models))
    if models:
        entries = _with_models(entries, models)
    return tuple(
        _plan(preset, entry, name, seeds)
        for entry in entries
        for name in entry.tasks
        if not tasks or name in tasks
    )


def _with_models(entries: Sequence[Entry], models: Sequence[str]) -> tuple[Entry, ...]:
    """Only these models, each on every task: where the entries have it, else beside a task's first models."""
    planned = {(name, model) for entry in entries for name in entry.tasks for model in entry.models}
    begun: set[str] = set()
    chosen = []
    for entry in entries:
        for name in entry.tasks:
            here = set(entry.models)
            if name not in begun:
                here |= {model for model in models if (name, model) not in planned}
            begun.add(name)
            chosen.append(entry._replace(tasks=(name,), models=tuple(m for m in models if m in here)))
    return tuple(entry for entry in chosen if entry.models)


def _plan(preset: Preset, entry: Entry, name: str, seeds: int | None) -> TaskPlan:
    task = get_task(name)
    effort = preset.efforts[task.num_spatial_dims]
    return TaskPlan(
        task.with_options(**effort.task),
        entry.models,
        seeds or entry.seeds or effort.seeds,
        {**effort.train, **entry.train},
        preset.settings,
        dict.fromkeys(TRANSFER_MODELS, preset.transfer_points) if name == TRANSFER_TASK else {},
    )


def make_jobs(plans: Iterable[TaskPlan]) -> tuple[Job, ...]:
    """The jobs of all plans, none twice: seed 0 of everything first, so that a study cut short is a table.

    A model fitted in closed form does not depend on its seed, so it is run once.

    **Raises:** `InputError` if there is nothing to do or a model is unknown.
    """
    jobs: dict[str, Job] = {}
    plans = tuple(plans)
    for seed in range(max((plan.seeds for plan in plans), default=0)):
        for plan in plans:
            for name in plan.models:
                job = _job(plan, name, seed)
                if seed < plan.seeds and (seed == 0 or job.train.updates > 0):
                    jobs.setdefault(job.id, job)
    if not jobs:
        raise InputError("There is no job to run. Choose at least one task, one model and one seed.")
    return tuple(jobs.values())


def _job(plan: TaskPlan, name: str, seed: int) -> Job:
    model = get_model(name, plan.task.num_spatial_dims)
    if changed := plan.settings.get(name):
        model = dataclasses.replace(model, **changed)
    train = TrainConfig.for_model(model, **plan.train)
    return Job(plan.task, name, model, train, seed, plan.transfer.get(name, ()))
