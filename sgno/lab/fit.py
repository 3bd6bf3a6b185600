"""Training on a user's own trajectories: from a file or an array to jobs like any other."""

import dataclasses
import functools
import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

from sgno.config import ModelConfig
from sgno.errors import InputError, unknown_name
from sgno.io.source import Source
from sgno.io.split import Split
from sgno.io.survey import Normalise
from sgno.lab.auto import MINUTES, Search, Tried, summary
from sgno.lab.data.own import DividedData, OwnData, OwnTask, divide, open_data
from sgno.lab.data.trajectories import default_cache
from sgno.lab.job import CHECKPOINT_SECONDS, Job, run_job
from sgno.lab.machine import use_compilation_cache
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.registry import MODELS, get_model, with_settings
from sgno.solve.forecast_horizon import LEVEL, PROBABILITY, ForecastHorizon, calibrate
from sgno.solve.show import score_text, with_error_curve
from sgno.training import Progress
from sgno.training.feed import num_windows
from sgno.weights import load

_NORMALISE = ("auto", "standard", "scale", "none")


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """A user's data looked at, and what will be trained on it. `warnings` are sentences for the user."""

    data: DividedData
    model_name: str
    model: ModelConfig
    train: TrainConfig
    normalise: Normalise
    warnings: tuple[str, ...]

    @property
    def task(self) -> OwnTask:
        return self.data.task

    def job(self, seed: int) -> Job:
        return Job(self.task, self.model_name, self.model, self.train, seed, normalise=self.normalise)


def plan_fit(
    data: OwnData | DividedData,
    model: str | ModelConfig = "sgno",
    *,
    settings: Mapping[str, Any] | None = None,
    split: Split | None = None,
    normalise: str = "auto",
    stream: bool | None = None,
    training: Mapping[str, Any] | None = None,
) -> FitPlan:
    """Look at the data, choose sizes that fit its grid and check every setting, before anything is written.

    **Raises:** `InputError` for anything that could not be trained.
    """
    if normalise not in _NORMALISE:
        raise unknown_name("normalisation", normalise, _NORMALISE)
    known = [field.name for field in dataclasses.fields(TrainConfig)]
    for option in training or {}:
        if option not in known:
            raise unknown_name("training setting", option, known)
    grid = data.learned_grid
    config = get_model(model, grid.num_spatial_dims) if isinstance(model, str) else model
    # A config or an APEBench string says its sizes itself; a named model takes those that the grid carries.
    config = config.for_grid(grid) if isinstance(model, str) and model in MODELS else config
    known = data.inputs if isinstance(data, OwnData) else data.task.inputs
    if known and not config.takes_inputs:
        raise InputError(
            f"The model {config.kind} takes no --inputs here ({', '.join(spec.name for spec in known)}). Use "
            "sgno.discover(u, inputs=...), or another model."
        )
    told = _told(config, data if isinstance(data, OwnData) else data.task)
    config = with_settings(config, {**told, **(settings or {})})
    protocol = TrainConfig.for_model(config, **(training or {}))
    eqx.filter_eval_shape(lambda: config.build(grid, key=jax.random.PRNGKey(0)))
    divided = data if isinstance(data, DividedData) else divide(data, split or Split(), streamed=stream)
    chosen: Any = config.units if normalise == "auto" else normalise
    return FitPlan(
        data=divided,
        model_name=model if isinstance(model, str) else model.kind,
        model=config,
        train=protocol,
        normalise=chosen,
        warnings=(*divided.survey.warnings, *_budget_warnings(divided.parts.train, protocol)),
    )


def _told(config: ModelConfig, data: OwnData | OwnTask) -> dict[str, Any]:
    """The time step and the sides of the doubled box, for a model that has settings for them."""
    fields, found = {field.name for field in dataclasses.fields(config)}, {}
    if "dt" in fields and isinstance(data.dt, float):
        found["dt"] = data.dt
    if "length" in fields and data.length is not None:
        sides = data.length
        if data.walls is not None:
            sides = [2 * s if w.parity else s for s, w in zip(sides, data.walls.channels[0], strict=True)]
        found["length"] = tuple(sides)
    return found


def _budget_warnings(train: Source, protocol: TrainConfig) -> list[str]:
    windows = train.shape[0] * num_windows(train.shape[1], protocol.unroll)
    if windows < protocol.batch_size:
        return [
            f"There are only {windows} windows to train on, fewer than the batch of {protocol.batch_size}: "
            "expect a step that knows little more than them. Give more or longer trajectories."
        ]
    return []


def plan_search(
    data: DividedData,
    store: Store,
    *,
    seed: int = 0,
    minutes: float | None = None,
    normalise: str = "auto",
    settings: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Search:
    """The search for the best model of these data, as far as it came before.

    **Raises:** `InputError` for settings that belong to one model.
    """
    if settings:
        raise InputError(
            f"{next(iter(settings))} is a setting of one model, but auto tries several. Name one --model, or "
            "leave the setting out."
        )
    given = {name: value for name, value in (training or {}).items() if value is not None}

    def make_job(model: str, changed: Mapping[str, Any]) -> Job:
        return plan_fit(data, model, normalise=normalise, training={**given, **changed}).job(seed)

    return Search(
        make_job,
        {"data": data.task.data_settings(), "seed": seed, "normalise": normalise, "training": given},
        store,
        minutes=MINUTES if minutes is None else minutes,
        updates=given.get("updates"),
    )


class Fit(NamedTuple):
    """A step trained on a user's data, in the units of that data; it carries its `config` and `grid`.

    - `record`: what a finished run stores: settings, scores on the test and validation parts, versions.
    - `horizon`: how many steps a forecast can be trusted; `str(fitted.horizon)` says it in words.
    - `tried`: the models that `auto` tried, the cheapest first; empty for a named model.
    - `summary`: the choice of `auto` in words.
    """

    step: Any
    record: dict[str, Any]
    warnings: tuple[str, ...]
    folder: Path | None
    horizon: ForecastHorizon
    tried: tuple[Tried, ...] = ()
    summary: str = ""

    def __repr__(self) -> str:
        record = self.record
        steps = f"{record['stable_step']} of {len(record['mean_nrmse'])} steps"
        warned = f"; {len(self.warnings)} warnings" if self.warnings else ""
        name, score = record["job"]["model_name"], score_text(record["gmean100"])
        return f"Fit({name}: GMean100 {score}, below 20 % for {steps}{warned})"

    def _repr_html_(self) -> str:
        return with_error_curve(repr(self), self.record["mean_nrmse"])


def fit(
    data: Any,
    model: str | ModelConfig = "auto",
    *,
    layout: str | None = None,
    array: str | None = None,
    inputs: Mapping[str, Any] | Sequence[str] = (),
    holds: Collection[str] = (),
    history: int = 1,
    boundary: str | None = None,
    nodes: str | None = None,
    dt: float | str | Any = None,
    length: float | Sequence[float] | None = None,
    settings: Mapping[str, Any] | None = None,
    validation: float | int = 0.1,
    test: float | int = 0.1,
    split_seed: int = 0,
    normalise: str = "auto",
    stream: bool | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    minutes: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **training: Any,
) -> Fit:
    """Train a model on your own trajectories, `(samples, times, channels, *points)`, or find the best one.

        fitted = sgno.fit(u)
        print(fitted.summary, fitted.horizon)
        states = sgno.rollout(fitted.step, u[0, 0], 1000)
        network = sgno.fit(u, "sgno", updates=2000)

    **Arguments:**

    - `data`: an array (numpy, JAX, h5py, zarr), or the path of an `.npy`, `.npz`, HDF5 or zarr file,
        or several paths.
    - `model`: `auto` tries several models, the cheapest first, and takes the one whose forecasts of the
        validation part are best. Otherwise a model of the registry, an APEBench string such as
        `"FNO;12;18;4;gelu"`, or a config such as `SGNOConfig(8, 16, 4)`, which is taken as it is.
    - `layout`: another order of axes, such as `"sample time space channel"`.
    - `array`: which array of a file.
    - `inputs`: known inputs by name, given to the model and never predicted: `(samples,)` parameters,
        `(*points)` or `(samples, *points)` fields, `(samples, times)` or `(samples, times, *points)`
        controls; or the names of arrays in the file. The step is then bound to inputs:
        `fitted.step.bind(nu=0.01)`.
    - `holds`: controls that keep the value of a frame until the next one; others are linear in between.
    - `history`: how many frames the model sees, for data in which one does not determine the next.
    - `boundary`: what holds at the walls: `dirichlet` (given values), `neumann` (no flux) or `periodic`, for
        everything or by axis and channel: `"x: dirichlet(0, 1), y: periodic"`, `"u: dirichlet, v: neumann"`.
        Values that are not given are measured. `nodes`: whether the outermost points are `walls` or `cells`.
    - `dt`: the time between frames, a number or an array by sample or by frame; times that differ are a known
        input of the model. `length`: of the box, or of each side.
    - `settings`: settings of the model, such as `{"width": 8}`; what is not given is chosen from the grid.
    - `validation`, `test`: fractions or numbers of the trajectories that are held out, drawn by `split_seed`.
    - `normalise`: `standard`, `scale` or `none`; `auto` is `scale` for models that have the form of an
        equation (`sgno-x`, `linear`), `none` for `equation` and `standard` for the others. Stored with the
        step.
    - `stream`: leave the training part on disk; by default if it is larger than 512 MB.
    - `seed`: of the weights and the batches.
    - `out`: folder of finished runs; the same call again answers from it, an interrupted one goes on.
    - `minutes`: what `auto` may take, 5 by default.
    - `training`: settings of the protocol (`updates`, `batch_size`, `peak_rate`, `unroll`, `noise`, ...).

    **Returns:** a `Fit`.

    **Raises:** `InputError` for data or settings that cannot be trained.
    """
    automatic = model == "auto"
    if minutes is not None and not automatic:
        raise InputError(
            f"minutes={minutes:g} is for model='auto'. Say how long one model trains by updates."
        )
    plan = plan_fit(
        open_data(
            data,
            key=array,
            layout=layout,
            history=history,
            inputs=inputs,
            holds=holds,
            boundary=boundary,
            nodes=nodes,
            dt=dt,
            length=length,
        ),
        "persistence" if automatic else model,
        settings=None if automatic else settings,
        split=Split(validation, test, split_seed),
        normalise=normalise,
        stream=stream,
        training=training,
    )
    use_compilation_cache(default_cache())
    with tempfile.TemporaryDirectory(prefix="sgno-fit-") if out is None else nullcontext(out) as folder:
        store = Store(folder)

        def run(job: Job) -> dict[str, Any]:
            return run_job(
                job,
                store,
                data=None if store.is_finished(job.id) else loaded(),
                on_progress=on_progress,
                checkpoint_seconds=math.inf if out is None else CHECKPOINT_SECONDS,
            )

        loaded = functools.cache(plan.data.load)
        tried, said = (), ""
        if automatic:
            search = plan_search(
                plan.data,
                store,
                seed=seed,
                minutes=minutes,
                normalise=normalise,
                settings=settings,
                training=training,
            )
            found = search.found or search.choose(loaded(), run)
            record = {**store.record(found.job), "auto": found.to_json()}
            tried, said = found.tried, summary(found, record, len(plan.warnings))
        else:
            record = run(plan.job(seed))
        # A training that diverged is a result like any other, and its record says so.
        step = load(store.weights(record["id"]), finite=record["diverged_at"] is None)
        place = None if out is None else store.job(record["id"])
        return Fit(step, record, plan.warnings, place, stored_horizon(store, record["id"]), tried, said)


def stored_horizon(
    store: Store, job_id: str, *, level: float = LEVEL, probability: float = PROBABILITY
) -> ForecastHorizon:
    """The horizon of a finished job, from the errors it keeps of its test part and its validation part."""
    curves = store.curves(job_id).arrays
    held_out = [curves[name] for name in ("nrmse", "validation_nrmse") if name in curves]
    return calibrate(held_out, level=level, probability=probability)
