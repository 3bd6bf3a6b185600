"""Finished jobs of a store as plain data. A record may come from anyone, so every field is checked."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from sgno.errors import InputError
from sgno.io.files import content_id
from sgno.lab.report.frontier import Frontier, read_frontier
from sgno.lab.store import Store

FAULTS = ("amplitude", "blocking", "phase")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of one rollout. Non-finite ones are infinite here, so that they sort as worse than any other."""

    gmean100: float
    stable_step: float
    nonfinite_steps: int
    mean_nrmse: tuple[float, ...]
    diagnostics: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Fault:
    """When a fault began in the first trajectory and in half of them, and the part that had it."""

    first: int | None
    half: int | None
    part: Annotated[float, msgspec.Meta(ge=0)]


@dataclasses.dataclass(frozen=True)
class Run:
    """One finished job."""

    id: str
    data: str
    task: Mapping[str, Any]
    model: str
    config: Mapping[str, Any]
    train: Mapping[str, Any]
    seed: int
    settings_id: str
    """An id of all that decides the result but the seed."""
    scores: Scores
    transfer: Mapping[int, Scores]
    diverged_at: int | None
    params: int
    params_real: int
    seconds_per_update: float | None
    train_seconds: float
    seconds: float
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    finished: str
    monitor: Mapping[str, "Fault"] | None = None
    """When each fault of `FAULTS` began; None in records from before rollouts were watched."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a store holds: runs, records that could not be read (and why), jobs that ended in an error, and
    the measurement against the solver if there is one."""

    runs: tuple[Run, ...]
    unreadable: tuple[str, ...]
    failures: tuple[Mapping[str, Any], ...]
    frontier: Frontier | None = None


def read_store(root: Path | str) -> Contents:
    """All records of a store. A damaged one is reported, not fatal, and never counted.

    **Raises:** `InputError` if there is no such folder or no job in it.
    """
    root = Path(root)
    if not root.is_dir():
        raise InputError(
            f"There is no folder {root}. Give the --out folder of `sgno run` or `sgno reproduce`."
        )
    runs, unreadable = [], []
    store = Store(root)
    for job_id in store.ids():
        try:
            runs.append(parse_run(store.record(job_id), job_id))
        except (ValueError, OSError) as error:
            unreadable.append(f"jobs/{job_id}/record.json: {error}")
    failures = list(store.failures())
    frontier = None
    try:
        frontier = read_frontier(root)
    except (ValueError, OSError) as error:
        unreadable.append(str(error))
    if not runs and not unreadable and not failures:
        raise InputError(
            f"{root} holds no finished job (no jobs/*/record.json). Run `sgno reproduce` into it first."
        )
    return Contents(tuple(runs), tuple(unreadable), tuple(failures), frontier)


Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
# JSON has no infinity: a score that was not finite is stored as null.
Score = Annotated[float, msgspec.Meta(ge=0)] | None
Positive = Annotated[int, msgspec.Meta(gt=0)]


class _Diagnostics(msgspec.Struct):
    state: Score
    energy: Score
    low: Score
    mid: Score
    high: Score
    phase: Score


DIAGNOSTICS = _Diagnostics.__struct_fields__


class _Scores(msgspec.Struct):
    gmean100: Score
    stable_step: Score
    nonfinite_steps: int
    mean_nrmse: Annotated[list[Score], msgspec.Meta(min_length=1, max_length=1_000_000)]
    diagnostics: _Diagnostics

    def checked(self) -> Scores:
        return Scores(
            gmean100=_or_inf(self.gmean100),
            stable_step=_or_inf(self.stable_step),
            nonfinite_steps=self.nonfinite_steps,
            mean_nrmse=tuple(map(_or_inf, self.mean_nrmse)),
            diagnostics={name: _or_inf(getattr(self.diagnostics, name)) for name in DIAGNOSTICS},
        )


class _Task(msgspec.Struct):
    name: Text
    num_spatial_dims: Literal[1, 2, 3]
    num_points: int
    test_steps: int
    points: list[Positive] = []


class _Training(msgspec.Struct):
    updates: Annotated[int, msgspec.Meta(ge=0)]
    batch_size: Positive


class _Job(msgspec.Struct):
    task: dict[str, Any]
    model_name: Text
    model: dict[str, Any]
    train: dict[str, Any]
    seed: int


class _Record(_Scores):
    data: Text
    job: _Job
    transfer: dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,7}$")], _Scores]
    diverged_at: int | None
    params: int
    params_real: int
    seconds_per_update: Score
    train_seconds: Score
    seconds: Score
    versions: dict[str, Any]
    machine: dict[str, Any]
    finished: Text
    monitor: dict[str, Fault] | None = None


def parse_run(content: Any, job_id: str) -> Run:
    """A record as a `Run`.

    **Raises:** `InputError` naming the first field that is missing or of the wrong kind.
    """
    try:
        record = msgspec.convert(content, _Record)
        job = record.job
        msgspec.convert(job.task, _Task)
        msgspec.convert(job.train, _Training)
        if record.monitor is not None and not record.monitor.keys() >= set(FAULTS):
            raise ValueError(f"monitor lacks one of {', '.join(FAULTS)}")
        # The grids it was also scored on change nothing in a run; a task's name changes nothing in its data.
        task = {name: value for name, value in job.task.items() if name != "name"}
        settings_id = content_id({"task": task, "model": job.model, "train": job.train})
        transfer = {int(points): scores.checked() for points, scores in record.transfer.items()}
        scores = record.checked()
    except (ValueError, OverflowError, RecursionError) as error:
        reason = str(error).replace("`", "'")
        raise InputError(f"{reason}. Delete the job's folder and run it again.") from error
    return Run(
        # The folder's name, not the record's own word for it: files are looked up by it.
        id=job_id,
        data=record.data,
        task=job.task,
        model=job.model_name,
        config=job.model,
        train=job.train,
        seed=job.seed,
        settings_id=settings_id,
        scores=scores,
        transfer=transfer,
        diverged_at=record.diverged_at,
        params=record.params,
        params_real=record.params_real,
        seconds_per_update=record.seconds_per_update,
        train_seconds=_or_inf(record.train_seconds),
        seconds=_or_inf(record.seconds),
        versions={name: str(version) for name, version in record.versions.items()},
        machine={name: _plain(value) for name, value in record.machine.items()},
        finished=record.finished,
        monitor=record.monitor and {name: record.monitor[name] for name in FAULTS},
    )


def _plain(value: Any) -> str | int | list[str]:
    """A fact about a machine: a number, a text, or a list of texts, none of them long."""
    if type(value) is int:
        return value
    return [str(x)[:200] for x in value[:64]] if isinstance(value, list) else str(value)[:200]


def _or_inf(value: float | None) -> float:
    return float("inf") if value is None else value
