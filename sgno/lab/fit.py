"""Training on a user's own trajectories: from a file or an array to jobs like any other."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax

from sgno.config import ModelConfig
from sgno.errors import unknown_name
from sgno.grid import Grid
from sgno.io.source import Source, array_source
from sgno.io.split import Split
from sgno.io.survey import Normalise, survey
from sgno.lab.data.own import OwnSources, OwnTask, describe, load_own, open_files
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.job import Job, run_job
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.registry import get_model, with_settings
from sgno.step import Step
from sgno.training import Progress
from sgno.training.feed import num_windows
from sgno.weights import load

AskedNormalise = Literal["auto", "standard", "scale", "none"]
_NORMALISE = ("auto", "standard", "scale", "none")


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """A user's data looked at, and what will be trained on it. `warnings` are sentences for the user."""

    sources: OwnSources
    task: OwnTask
    model_name: str
    model: ModelConfig
    train: TrainConfig
    normalise: Normalise
    warnings: tuple[str, ...]

    def job(self, seed: int) -> Job:
        return Job(self.task, self.model_name, self.model, self.train, seed, normalise=self.normalise)

    def load(self) -> Trajectories:
        """The parts of the data, read from the sources at hand."""
        return load_own(self.task, self.sources)


def plan_fit(
    sources: OwnSources,
    name: str,
    model: str | ModelConfig = "sgno",
    *,
    settings: Mapping[str, Any] | None = None,
    split: Split | None = None,
    normalise: str = "auto",
    stream: bool | None = None,
    files: Sequence[Path | str] = (),
    key: str | None = None,
    layout: str | None = None,
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
    split = split or Split()
    parts = split(sources.source, sources.test)
    grid = parts.train.grid
    if isinstance(model, str):
        config = get_model(model, grid.num_spatial_dims)
        # A string of APEBench says the sizes itself; a named model takes those that the grid carries.
        config = config if ";" in model else config.for_grid(grid)
    else:
        config = model
    config = with_settings(config, settings or {})
    protocol = TrainConfig.for_model(config, **(training or {}))
    num_windows(parts.train.shape[1], protocol.unroll)
    eqx.filter_eval_shape(lambda: config.build(grid, key=jax.random.PRNGKey(0)))
    seen = survey(parts.train)
    chosen: Any = normalise
    if normalise == "auto":
        chosen = "scale" if config.keeps_zero else "standard"
    return FitPlan(
        sources=sources,
        task=describe(sources, name, split, streamed=stream, files=files, key=key, layout=layout),
        model_name=model if isinstance(model, str) else model.kind,
        model=config,
        train=protocol,
        normalise=chosen,
        warnings=(*seen.warnings, *_budget_warnings(parts.train, protocol)),
    )


def _budget_warnings(train: Source, protocol: TrainConfig) -> list[str]:
    windows = train.shape[0] * (train.shape[1] - protocol.unroll)
    if windows < protocol.batch_size:
        return [
            f"There are only {windows} windows to train on, fewer than the batch of {protocol.batch_size}: "
            "expect a step that knows little more than them. Give more or longer trajectories."
        ]
    return []


class Fit(NamedTuple):
    """A step trained on a user's data, in the units of that data.

    `record` is what a finished run stores: settings, scores on the test and validation parts, versions.
    """

    step: Step
    config: ModelConfig
    grid: Grid
    record: dict[str, Any]
    warnings: tuple[str, ...]
    folder: Path | None


def fit(
    data: Any,
    model: str | ModelConfig = "sgno",
    *,
    layout: str | None = None,
    key: str | None = None,
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

    - `data`: an array (numpy, JAX, h5py, zarr), or the path of an `.npy`, `.npz`, HDF5 or zarr file.
    - `model`: a model of the registry, an APEBench string such as `"FNO;12;18;4;gelu"`, or a config such as
        `SGNOConfig(8, 16, 4)`, which is taken as it is.
    - `layout`: another order of axes, such as `"sample time space channel"`.
    - `key`: which array of a file.
    - `settings`: settings of the model, such as `{"width": 8}`; what is not given is chosen from the grid.
    - `validation`, `test`: fractions or numbers of the trajectories that are held out, drawn by `split_seed`.
    - `normalise`: `standard`, `scale` or `none`; `auto` is `scale` for models that have the form of an
        equation (`sgno-x`, `linear`) and `standard` for the others. Stored with the step.
    - `stream`: leave the training part on disk; by default if it is larger than 512 MB.
    - `seed`: of the weights and the batches.
    - `out`: folder of finished runs; the same call again answers from it, an interrupted one goes on.
    - `training`: any field of `TrainConfig` (`updates`, `batch_size`, `peak_rate`, `unroll`, `noise`, ...).

    **Returns:** a `Fit`.

    **Raises:** `InputError` for data or settings that cannot be trained.
    """
    files = [data] if isinstance(data, (str, Path)) else []
    sources = open_files(files, key=key, layout=layout) if files else OwnSources(_source(data, layout))
    plan = plan_fit(
        sources,
        Path(files[0]).name if files else "array",
        model,
        settings=settings,
        split=Split(validation, test, split_seed),
        normalise=normalise,
        stream=stream,
        files=files,
        key=key,
        layout=layout,
        training=training,
    )
    if out is not None:
        return _fitted(plan, seed, Store(out), Path(out), on_progress)
    with tempfile.TemporaryDirectory(prefix="sgno-fit-") as folder:
        return _fitted(plan, seed, Store(folder), None, on_progress)


def _source(data: Any, layout: str | None) -> Source:
    return data if isinstance(data, Source) else array_source(data, layout=layout)


def _fitted(plan: FitPlan, seed: int, store: Store, kept: Path | None, on_progress) -> Fit:
    job = plan.job(seed)
    trajectories = None if store.is_finished(job.id) else plan.load()
    checkpoint_seconds = math.inf if kept is None else 30.0
    record = run_job(
        job, store, data=trajectories, on_progress=on_progress, checkpoint_seconds=checkpoint_seconds
    )
    step = load(store.weights(job.id))
    folder = None if kept is None else store.job(job.id)
    return Fit(step, step.config, step.grid, record, plan.warnings, folder)
