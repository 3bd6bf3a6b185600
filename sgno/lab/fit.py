"""Training on a user's own trajectories: from a file or an array to jobs like any other."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax

from sgno.config import ModelConfig
from sgno.errors import unknown_name
from sgno.io.source import Source
from sgno.io.split import Split
from sgno.io.survey import Normalise
from sgno.lab.data.own import DividedData, OwnData, OwnTask, divide, open_data
from sgno.lab.job import CHECKPOINT_SECONDS, Job, run_job
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.registry import MODELS, get_model, with_settings
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
    data: OwnData,
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
    grid = data.source.grid
    config = get_model(model, grid.num_spatial_dims) if isinstance(model, str) else model
    # A config or an APEBench string says its sizes itself; a named model takes those that the grid carries.
    config = config.for_grid(grid) if isinstance(model, str) and model in MODELS else config
    config = with_settings(config, settings or {})
    protocol = TrainConfig.for_model(config, **(training or {}))
    eqx.filter_eval_shape(lambda: config.build(grid, key=jax.random.PRNGKey(0)))
    divided = divide(data, split or Split(), streamed=stream)
    chosen: Any = config.units if normalise == "auto" else normalise
    return FitPlan(
        data=divided,
        model_name=model if isinstance(model, str) else model.kind,
        model=config,
        train=protocol,
        normalise=chosen,
        warnings=(*divided.survey.warnings, *_budget_warnings(divided.parts.train, protocol)),
    )


def _budget_warnings(train: Source, protocol: TrainConfig) -> list[str]:
    windows = train.shape[0] * num_windows(train.shape[1], protocol.unroll)
    if windows < protocol.batch_size:
        return [
            f"There are only {windows} windows to train on, fewer than the batch of {protocol.batch_size}: "
            "expect a step that knows little more than them. Give more or longer trajectories."
        ]
    return []


class Fit(NamedTuple):
    """A step trained on a user's data, in the units of that data; it carries its `config` and `grid`.

    `record` is what a finished run stores: settings, scores on the test and validation parts, versions.
    """

    step: Any
    record: dict[str, Any]
    warnings: tuple[str, ...]
    folder: Path | None


def fit(
    data: Any,
    model: str | ModelConfig = "sgno",
    *,
    layout: str | None = None,
    array: str | None = None,
    settings: Mapping[str, Any] | None = None,
    validation: float | int = 0.1,
    test: float | int = 0.1,
    split_seed: int = 0,
    normalise: str = "auto",
    stream: bool | None = None,
    seed: int = 0,
    out: Path | str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **training: Any,
) -> Fit:
    """Train a model on your own trajectories, `(samples, times, channels, *points)`.

        fitted = sgno.fit(u, "sgno", updates=2000)
        states = sgno.rollout(fitted.step, u[0, 0], 1000)

    **Arguments:**

    - `data`: an array (numpy, JAX, h5py, zarr), or the path of an `.npy`, `.npz`, HDF5 or zarr file,
        or several paths.
    - `model`: a model of the registry, an APEBench string such as `"FNO;12;18;4;gelu"`, or a config such as
        `SGNOConfig(8, 16, 4)`, which is taken as it is.
    - `layout`: another order of axes, such as `"sample time space channel"`.
    - `array`: which array of a file.
    - `settings`: settings of the model, such as `{"width": 8}`; what is not given is chosen from the grid.
    - `validation`, `test`: fractions or numbers of the trajectories that are held out, drawn by `split_seed`.
    - `normalise`: `standard`, `scale` or `none`; `auto` is `scale` for models that have the form of an
        equation (`sgno-x`, `linear`), `none` for `equation` and `standard` for the others. Stored with the
        step.
    - `stream`: leave the training part on disk; by default if it is larger than 512 MB.
    - `seed`: of the weights and the batches.
    - `out`: folder of finished runs; the same call again answers from it, an interrupted one goes on.
    - `training`: settings of the protocol (`updates`, `batch_size`, `peak_rate`, `unroll`, `noise`, ...).

    **Returns:** a `Fit`.

    **Raises:** `InputError` for data or settings that cannot be trained.
    """
    plan = plan_fit(
        open_data(data, key=array, layout=layout),
        model,
        settings=settings,
        split=Split(validation, test, split_seed),
        normalise=normalise,
        stream=stream,
        training=training,
    )
    with tempfile.TemporaryDirectory(prefix="sgno-fit-") if out is None else nullcontext(out) as folder:
        store, job = Store(folder), plan.job(seed)
        record = run_job(
            job,
            store,
            data=None if store.is_finished(job.id) else plan.data.load(),
            on_progress=on_progress,
            checkpoint_seconds=math.inf if out is None else CHECKPOINT_SECONDS,
        )
        # A training that diverged is a result like any other, and its record says so.
        step = load(store.weights(job.id), finite=record["diverged_at"] is None)
        return Fit(step, record, plan.warnings, None if out is None else store.job(job.id))
