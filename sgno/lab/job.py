"""One job: train one model on one task from one seed, roll it out, score it, store it.

This is the one file that wires models, data, training and evaluation together.
"""

import dataclasses
import functools
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import enable_x64
from jaxtyping import PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.identify import warm_start
from sgno.identify.equation import EquationStep
from sgno.io.commit import new_folder, write_bytes
from sgno.io.files import content_id, finite, save_arrays, seal, write_json
from sgno.io.split import excerpt
from sgno.io.survey import Normalise
from sgno.lab.data.own import OwnTask, id_of_data, load_data, task_from_json
from sgno.lab.data.trajectories import Trajectories, solver_versions
from sgno.lab.machine import forget_peak, machine, peak_bytes, versions
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import CURVES, SAMPLE, WEIGHTS, Store
from sgno.lab.tasks import Task
from sgno.lab.tracking import METRICS, JsonLines, numbers_of
from sgno.lab.views import Views
from sgno.progress import tell
from sgno.registry import config_from_json
from sgno.solve.evaluate import Evaluation, evaluate, sample_reference
from sgno.solve.forecast_horizon import calibrate, range_to_json
from sgno.solve.metrics import HORIZON, spectral_averages
from sgno.solve.monitor import reference_statistics, summary
from sgno.step import Step, count_parameters
from sgno.training import Progress, TrainResult, initial_state, load_checkpoint, save_checkpoint
from sgno.weights import save

CHECKPOINT_SECONDS = 30.0
TAU = 0.2
# Test trajectories of a finer grid: 30 of kolm2d at 256² alone take 3.6 GB while they are made.
TRANSFER_SAMPLES = 10
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Job:
    """Settings of one run, as plain data. `transfer_points` are finer grids to score the same weights on;
    `normalise` are the units the model learns in."""

    task: Task | OwnTask
    model_name: str
    model: ModelConfig
    train: TrainConfig
    seed: int = 0
    transfer_points: tuple[int, ...] = ()
    normalise: Normalise = "none"

    # Kept: a study asks for the ids of all waiting jobs after every word of a worker.
    @functools.cached_property
    def id(self) -> str:
        """A hash of the settings that decide the result and of the solver versions."""
        content = {**self.to_json(), "task": self.task.data_settings()}
        del content["model_name"]
        return content_id({**content, "solver": solver_versions()})

    def to_json(self) -> dict[str, Any]:
        return {
            "task": self.task.to_json(),
            "model_name": self.model_name,
            "model": self.model.to_json(),
            "train": self.train.to_json(),
            "seed": self.seed,
            "transfer_points": list(self.transfer_points),
            # Left out where there is none, as it was before there were any: ids are made of this.
            **({} if self.normalise == "none" else {"normalise": self.normalise}),
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Job":
        return Job(
            task_from_json(content["task"]),
            content["model_name"],
            config_from_json(content["model"]),
            TrainConfig.from_json(content["train"]),
            content["seed"],
            tuple(content["transfer_points"]),
            content.get("normalise", "none"),
        )


def run_job(
    job: Job,
    store: Store,
    *,
    cache: Path | None = None,
    data: Trajectories | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    claimed: bool = False,
) -> dict[str, Any]:
    """Run a job to its end, or answer from the store if it is finished.

    An interrupted job leaves a checkpoint from which the next call goes on, bit for bit. A job that another
    process is running is waited for, unless the caller holds its claim (`claimed`). `data` are the
    trajectories of its task, if they are at hand.

    **Returns:**

    The job's record, as stored.
    """
    if store.is_finished(job.id):
        return store.record(job.id)
    with nullcontext() if claimed else _claim(job, store):
        folder = store.job(job.id)
        if folder.is_dir():
            if store.is_finished(job.id):
                return store.record(job.id)
            # A run that somebody took apart would be in the way of the new one.
            shutil.rmtree(folder, ignore_errors=True)
        with enable_x64(job.train.precision == "float64"):
            return _run(job, store, cache, data, on_progress, checkpoint_seconds)


def _claim(job: Job, store: Store) -> AbstractContextManager[bool]:
    """The claim of a job, waiting for whoever has it."""
    store.create().sweep()
    who = f"{job.task.name} {job.model_name} seed {job.seed}"
    waits = lambda owner: _log.warning("%s is being run by %s: waiting for its end.", who, owner)
    return store.claim(job.id, on_wait=waits)


def _run(
    job: Job,
    store: Store,
    cache: Path | None,
    data: Trajectories | None,
    on_progress,
    checkpoint_seconds: float,
) -> dict[str, Any]:
    started = time.perf_counter()
    forget_peak()
    tell("reading the data")
    data = load_data(job.task, cache) if data is None else data
    views = Views.of(job.task, data, job.normalise)
    learned = views.learned(data.train)
    init_key, shuffle_key, fit_key = _keys(jax.random.PRNGKey(job.seed))
    tell("starting the model")
    # Drawn in float32 whatever the precision, so that one seed means one start.
    with enable_x64(False):
        step = views.build(job.model, key=init_key)
        step = warm_start(step, excerpt(learned), key=fit_key)
    trained_from = time.perf_counter()
    result = _train(job, step, learned, store, shuffle_key, on_progress, checkpoint_seconds)
    train_seconds = time.perf_counter() - trained_from
    equation = equation_of(result.step)
    result = result._replace(step=views.wrap(result.step))
    tell("scoring")
    watch = reference_statistics(excerpt(data.train)[:, :, : views.grid.channels])
    scored = evaluate(result.step, data.test, precision=job.train.precision, watch=watch)
    assert scored.signals is not None
    validated = (
        None
        if data.validation is None
        else evaluate(result.step, data.validation, precision=job.train.precision, watch=watch)
    )
    held_out = [part for part in (scored, validated) if part is not None]
    transfer = {str(n): _transfer(job, result.step, n, cache) for n in job.transfer_points}

    count = count_parameters(result.step)
    record = {
        "id": job.id,
        "job": job.to_json(),
        "data": data.id,
        "params": count.params,
        "params_real": count.real,
        **_scores(scored),
        **_validation(validated),
        "horizon": calibrate([part.nrmse for part in held_out]).to_json(),
        **({} if equation is None else {"equation": equation}),
        "monitor": summary(scored.signals),
        "transfer": transfer,
        "diverged_at": result.diverged_at,
        "final_loss": finite(result.losses[-100:].mean() if len(result.losses) else float("nan")),
        "seconds_per_update": finite(result.seconds_per_update),
        "train_seconds": train_seconds,
        "seconds": time.perf_counter() - started,
        "peak_memory_bytes": peak_bytes(),
        "versions": versions(),
        "machine": machine(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    record = seal(record)
    reference = sample_reference(data.test, views.grid.channels)
    _write(job, store, reference, result, scored, validated, record, range_to_json(watch, held_out))
    return record


def _split(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """The keys of the start, of the batches and of the fit to the data."""
    # APEBench's own order of keys, so that the same seed gives the same start and the same batches.
    init_key, shuffle_key = jax.random.split(key)
    return init_key, shuffle_key, jax.random.fold_in(init_key, 1)


# One program, which runs once: optimising it would take longer.
_keys = jax.jit(_split, compiler_options={"xla_backend_optimization_level": "0"})


@functools.singledispatch
def equation_of(step: Step) -> dict[str, Any] | None:
    """What a found equation says, for the record: text, LaTeX, terms with 95 % intervals. None for others."""
    del step
    return None


@equation_of.register
def _(step: EquationStep) -> dict[str, Any]:
    found, config = step.equation, step.config
    errors = found.standard_errors or (float("nan"),) * len(found.terms)
    rows = zip(found.terms, found.coefficients, errors, strict=True)
    return {
        "text": str(found).splitlines(),
        "latex": found.latex(),
        "terms": [found.describe(term, value, 1.96 * error) for term, value, error in rows],
        "found": config.found,
        "held_out": finite(config.held_out),
        "notes": list(config.notes),
    }


def _train(
    job: Job, step: Step, trajectories, store: Store, key, on_progress, checkpoint_seconds: float
) -> TrainResult:
    """Train with checkpoints, going on from one if the job was interrupted."""
    path, settings = store.checkpoint(job.id), {"job": job.id}
    optimizer, state, losses = job.train.optimizer(trajectories), None, None
    if path.exists():
        like = initial_state(step, optimizer, key=key, precision=job.train.precision)
        try:
            state, losses = load_checkpoint(path, like, settings)
        except InputError as error:
            # The job is still well defined.
            _log.warning("Training starts afresh, because its checkpoint cannot be used: %s", error)
            path.unlink(missing_ok=True)
    lines = JsonLines(store.metrics(job.id), after=0 if state is None else int(state.update))
    latest: list[Progress] = []
    saved_at = time.monotonic()

    def remember(progress: Progress) -> None:
        nonlocal saved_at
        latest[:] = [progress]
        lines.log(progress.update, numbers_of(progress))
        if on_progress is not None:
            on_progress(progress)
        if time.monotonic() - saved_at > checkpoint_seconds:
            save_checkpoint(path, progress.state, progress.losses, settings)
            saved_at = time.monotonic()

    try:
        resumed = {"optimizer": optimizer, "state": state, "losses": losses}
        return job.train.train(step, trajectories, key=key, on_progress=remember, **resumed)
    except KeyboardInterrupt:
        if latest:
            save_checkpoint(path, latest[0].state, latest[0].losses, settings)
        raise
    finally:
        lines.close()


def _scores(scored: Evaluation) -> dict[str, Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        state = float(scored.mean_nrmse[:HORIZON].mean())
    return {
        "gmean100": finite(scored.gmean100),
        "stable_step": scored.stable_step(TAU),
        "nonfinite_steps": scored.nonfinite_steps,
        "mean_nrmse": finite(scored.mean_nrmse),
        "diagnostics": finite({"state": state, **spectral_averages(scored.spectral)}),
    }


def _validation(validated: Evaluation | None) -> dict[str, Any]:
    """Scores on the validation part, if there is one: what models and settings may be chosen by."""
    if validated is None:
        return {}
    return {"validation": {"gmean100": finite(validated.gmean100), "stable_step": validated.stable_step(TAU)}}


def _transfer(job: Job, step: Step, num_points: int, cache: Path | None) -> dict[str, Any]:
    """Scores of the same weights on another grid; only the test data of that grid is needed."""
    if not isinstance(job.task, Task):
        raise InputError("Finer grids of your own data are not known. Leave transfer_points empty.")
    finer = dataclasses.replace(
        job.task,
        num_points=num_points,
        num_train_samples=1,
        train_steps=1,
        num_test_samples=min(TRANSFER_SAMPLES, job.task.num_test_samples),
    )
    data = load_data(finer, cache)
    scored = _scores(evaluate(step, data.test, precision=job.train.precision))
    return {"data": data.id, **scored}


def _write(
    job: Job,
    store: Store,
    reference: np.ndarray,
    result: TrainResult,
    scored: Evaluation,
    validated: Evaluation | None,
    record: dict[str, Any],
    training_range: dict[str, Any],
) -> None:
    truth = store.truth(id_of_data(job.task))
    if not truth.exists():
        save_arrays(truth, {"task": job.task.to_json()}, {"states": reference})
    thin = max(1, len(result.losses) // 1000)
    with np.errstate(over="ignore", invalid="ignore"):
        curves = {
            "nrmse": scored.nrmse.astype(np.float32),
            "correlation": scored.correlation.astype(np.float32),
            **{name: np.asarray(e, np.float32).mean(axis=1) for name, e in scored.spectral._asdict().items()},
            "spectrum": scored.spectrum[::10].astype(np.float32),
            "reference_spectrum": scored.reference_spectrum[::10].astype(np.float32),
            "losses": result.losses[::thin].astype(np.float32),
            **({} if validated is None else {"validation_nrmse": validated.nrmse.astype(np.float32)}),
        }
    kept = ("id", "job", "data", "gmean100", "horizon", "versions", "finished")
    provenance = {**{key: record[key] for key in kept}, "range": training_range}
    with new_folder(store.job(job.id)) as folder:
        save_arrays(folder / CURVES, {"id": job.id}, curves)
        save_arrays(folder / SAMPLE, {"id": job.id}, {"states": scored.sample})
        save(folder / WEIGHTS, result.step, provenance)
        write_bytes(folder / METRICS, [store.metrics(job.id).read_bytes()])
        write_json(folder / "record.json", record)
    store.checkpoint(job.id).unlink(missing_ok=True)
    store.metrics(job.id).unlink(missing_ok=True)
    store.forget_failure(job.id)
