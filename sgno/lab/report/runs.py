"""Finished jobs of a store as plain data. A record is a stranger's file until its fields are checked."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.io.files import content_id, read_sealed
from sgno.lab.report.frontier import Frontier, read_frontier
from sgno.lab.store import Store

DIAGNOSTICS = ("state", "energy", "low", "mid", "high", "phase")
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
    part: float


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
    for path in sorted(root.glob("jobs/*/record.json")):
        if path.parent.name.startswith("."):
            continue
        try:
            runs.append(parse_run(read_sealed(path), path.parent.name))
        except (ValueError, OSError) as error:
            unreadable.append(f"{path.relative_to(root)}: {error}")
    failures = []
    try:
        failures = [failure for failure in Store(root).failures() if isinstance(failure, dict)]
    except (ValueError, OSError) as error:
        unreadable.append(f"failed: {error}")
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


def parse_run(record: Any, job_id: str) -> Run:
    """A record as a `Run`.

    **Raises:** `InputError` naming the first field that is missing or of the wrong kind.
    """
    try:
        return _parse(record, job_id)
    except (OverflowError, RecursionError) as error:
        raise InputError(f"The record holds a number too large or lists too deep ({error}).") from error


def _parse(record: Any, job_id: str) -> Run:
    fields = _Fields(record, "record")
    job, task = fields.part("job"), fields.part("job").part("task")
    for name in ("num_spatial_dims", "num_points", "test_steps"):
        task.whole(name)
    if task.whole("num_spatial_dims") not in (1, 2, 3):
        raise InputError(f"num_spatial_dims={task.whole('num_spatial_dims')} must be 1, 2 or 3.")
    axes = task.content.get("points", [])
    if not isinstance(axes, list) or not all(type(n) is int and n > 0 for n in axes):
        raise InputError(f"points={axes!r:.80} must be a list of the points along each axis.")
    task.text("name")
    train = job.part("train")
    if train.whole("updates") < 0 or train.whole("batch_size") < 1:
        raise InputError("updates must be zero or more, and batch_size at least 1.")
    transfer = fields.part("transfer").content
    return Run(
        # The folder's name, not the record's own word for it: files are looked up by it.
        id=job_id,
        data=fields.text("data"),
        task=task.content,
        model=job.text("model_name"),
        config=job.part("model").content,
        train=train.content,
        seed=job.whole("seed"),
        settings_id=_settings_id(job.part("model").content, task.content, train.content),
        scores=_scores(fields),
        transfer={
            _points(points): _scores(_Fields(part, f"transfer.{points}")) for points, part in transfer.items()
        },
        diverged_at=None if fields.get("diverged_at") is None else fields.whole("diverged_at"),
        params=fields.whole("params"),
        params_real=fields.whole("params_real"),
        seconds_per_update=None
        if fields.get("seconds_per_update") is None
        else fields.number("seconds_per_update"),
        train_seconds=fields.number("train_seconds"),
        seconds=fields.number("seconds"),
        versions={str(k): str(v) for k, v in fields.part("versions").content.items()},
        machine={str(k): _plain(v) for k, v in fields.part("machine").content.items()},
        finished=fields.text("finished"),
        monitor=_monitor(fields),
    )


def _monitor(fields: "_Fields") -> dict[str, Fault] | None:
    if "monitor" not in fields.content:
        return None
    part = fields.part("monitor")
    faults = {name: part.part(name) for name in FAULTS}
    when = lambda fault, name: None if fault.get(name) is None else fault.whole(name)
    return {
        name: Fault(when(fault, "first"), when(fault, "half"), fault.number("part"))
        for name, fault in faults.items()
    }


def _settings_id(model: Mapping[str, Any], task: Mapping[str, Any], train: Mapping[str, Any]) -> str:
    # The grids it was also scored on change nothing in a run; the name of a task changes nothing in its data.
    content = {"task": {k: v for k, v in task.items() if k != "name"}, "model": model, "train": train}
    try:
        return content_id(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The settings are not plain JSON ({error}).") from error


def _scores(fields: "_Fields") -> Scores:
    curve = fields.get("mean_nrmse")
    if not isinstance(curve, list) or not curve or len(curve) > 1_000_000:
        raise InputError("mean_nrmse must be a list with one number a step.")
    if not all(type(x) is float and x >= 0 for x in curve):
        curve = [_finite_or_inf(x, "mean_nrmse") for x in curve]
    diagnostics = fields.part("diagnostics")
    return Scores(
        gmean100=fields.number("gmean100"),
        stable_step=fields.number("stable_step"),
        nonfinite_steps=fields.whole("nonfinite_steps"),
        mean_nrmse=tuple(curve),
        diagnostics={name: diagnostics.number(name) for name in DIAGNOSTICS},
    )


def _plain(value: Any) -> str | int | list[str]:
    """A fact about a machine: a number, a text, or a list of texts, none of them long."""
    if type(value) is int:
        return value
    return [str(x)[:200] for x in value[:64]] if isinstance(value, list) else str(value)[:200]


def _points(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise InputError(f"transfer has the grid {text!r}, but a number of points was expected.")
    return int(text)


def _finite_or_inf(value: Any, name: str) -> float:
    """JSON has no infinity: a score that was not finite is stored as null."""
    if value is None:
        return float("inf")
    if type(value) not in (int, float) or not value >= 0:
        raise InputError(f"{name} is {value!r}, but a number from zero on, or null, was expected.")
    return float(value)


class _Fields:
    """A JSON object whose fields are asked for by kind."""

    def __init__(self, content: Any, name: str):
        if not isinstance(content, dict):
            raise InputError(f"{name} is a {type(content).__name__}, but an object was expected.")
        self.content, self.name = content, name

    def get(self, name: str) -> Any:
        if name not in self.content:
            raise InputError(f"{self.name} has no field '{name}'. Delete the job's folder and run it again.")
        return self.content[name]

    def part(self, name: str) -> "_Fields":
        return _Fields(self.get(name), f"{self.name}.{name}")

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str) or not value or len(value) > 1000:
            raise InputError(f"{self.name}.{name} must be a text of 1 to 1000 characters.")
        return value

    def whole(self, name: str) -> int:
        value = self.get(name)
        if type(value) is not int:
            raise InputError(f"{self.name}.{name} is {value!r}, but a whole number was expected.")
        return value

    def number(self, name: str) -> float:
        return _finite_or_inf(self.get(name), f"{self.name}.{name}")
