"""How long a study will take on this machine, from a few updates of each of its settings.

Timings are kept in the store's folder, and finished jobs are timings too, so nothing is measured twice.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from sgno.errors import InputError
from sgno.identify import warm_start
from sgno.io.files import content_id, read_json, write_json
from sgno.io.split import excerpt
from sgno.lab.data.own import load_data
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.executor import Executor
from sgno.lab.job import TRANSFER_SAMPLES, Job
from sgno.lab.machine import machine
from sgno.lab.store import Store
from sgno.lab.views import Views
from sgno.training import Progress

# Updates after the compiling one.
_TIMED_UPDATES = 4
# A forward pass costs about a third of an update (forward, backward, optimiser).
_FORWARD = 1 / 3


class Timing(NamedTuple):
    """Seconds to prepare and compile, and seconds per update."""

    fixed: float
    update: float
    processor: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Estimate(NamedTuple):
    """Expected seconds of work per job id, and how many of the settings were measured."""

    seconds: Mapping[str, float]
    measured: int
    settings: int

    def total(self, workers: int) -> float:
        """Seconds until the end. No study ends before its longest job."""
        return max(sum(self.seconds.values()) / workers, max(self.seconds.values(), default=0.0))


def timing_id(job: Job) -> str:
    """Jobs with the same id cost the same per update."""
    options = {
        k: getattr(job.train, k) for k in ("batch_size", "unroll", "pushforward", "noise", "precision")
    }
    grid = (job.task.scenario, job.task.num_spatial_dims, job.task.num_points)
    return content_id({"model": job.model.to_json(), "grid": grid, "train": options})


class _Enough(Exception):
    """Ends a measurement."""


def measure(job: Job, store: Store, cache: Path) -> Timing:
    """Prepare a job and make a few updates. Its data and compiled programs stay in the cache for the run."""
    load_data(job.task, cache)
    timing = time_updates(job, load_data(job.task, cache))
    write_json(store.timing(timing_id(job)), timing.to_json())
    return timing


def time_updates(job: Job, data: Trajectories) -> Timing:
    """Prepare a job on its data and make a few updates."""
    start = time.perf_counter()
    key = jax.random.PRNGKey(job.seed)
    step = Views.of(job.task, data, "none").build(job.model, key=key)
    step = warm_start(step, excerpt(data.train), key=key)
    marks: list[float] = [time.perf_counter()]
    counts: list[int] = [0]

    def listen(progress: Progress) -> None:
        marks.append(time.perf_counter())
        counts.append(progress.update)
        if progress.update > _TIMED_UPDATES:
            raise _Enough

    with contextlib.suppress(_Enough):
        job.train.train(step, data.train, key=key, on_progress=listen)
    compiling = marks[1] - marks[0] if len(marks) > 1 else 0.0
    update = (marks[-1] - marks[1]) / (counts[-1] - counts[1]) if len(marks) > 2 else 0.0
    # Training, scoring and the sample are three programs; the last two have no backward pass.
    return Timing(marks[0] - start + 2 * compiling, update, machine()["processor"])


def estimate(
    jobs: Sequence[Job], store: Store, executor: Executor, *, cache: Path, seconds: float
) -> Estimate:
    """What each job will cost; what is not known yet is measured, for about `seconds` at most.

    A setting that was not measured is taken to cost as much per point as those of its dimension that were.
    """
    known = _known(store)
    unknown = {timing_id(job): job for job in reversed(jobs) if timing_id(job) not in known}
    # The most expensive first: they decide the sum.
    expensive = sorted(unknown.values(), key=lambda job: job.train.updates * _points(job), reverse=True)
    known.update(_measure_some(expensive, store, executor, cache, seconds))
    cost = {job.id: _cost(job, known, jobs) for job in jobs if not store.is_finished(job.id)}
    settings = {timing_id(job) for job in jobs}
    return Estimate(cost, len(settings & known.keys()), len(settings))


def _measure_some(
    jobs: Sequence[Job], store: Store, executor: Executor, cache: Path, seconds: float
) -> dict[str, Timing]:
    """The timings that workers find before the time is up. A call that is under way is waited for."""
    deadline = time.monotonic() + seconds
    left, running, found = list(jobs), dict[str, Job](), dict[str, Timing]()
    while running or (left and time.monotonic() < deadline):
        while left and len(running) < executor.slots and time.monotonic() < deadline:
            job = left.pop(0)
            call_id = timing_id(job)
            running[call_id] = job
            places = {"store": str(store.root.absolute()), "cache": str(cache.absolute())}
            executor.submit({"what": "measure", "id": call_id, "job": job.to_json(), **places})
        for event in executor.events(timeout=0.2):
            if event.id in running and event.kind in ("done", "lost"):
                del running[event.id]
                if "timing" in event.content:
                    found[event.id] = Timing(**event.content["timing"])
    return found


def _known(store: Store) -> dict[str, Timing]:
    """Timings of this kind of machine: measured before, or taken from finished jobs."""
    processor = machine()["processor"]
    known = {}
    for path in sorted(store.root.glob("timings/*.json")):
        try:
            timing = Timing(**read_json(path))
        except (InputError, TypeError):
            # A damaged entry is measured again.
            continue
        if timing.processor == processor:
            known[path.stem] = timing
    for record in store.records():
        if record["machine"]["processor"] == processor:
            job, update = Job.from_json(record["job"]), record["seconds_per_update"] or 0.0
            fixed = record["seconds"] - update * job.train.updates - _rollout(job, update)
            known[timing_id(job)] = Timing(max(fixed, 0.0), update, processor)
    return known


def _rollout(job: Job, update: float) -> float:
    """Seconds of scoring, on the job's own grid and on finer ones, whose data must be made as well."""
    task = job.task
    step = _FORWARD * update / job.train.batch_size
    own = task.test_steps * task.num_test_samples * step
    fewer = min(1.0, TRANSFER_SAMPLES / task.num_test_samples)
    finer = sum((n / task.num_points) ** task.num_spatial_dims for n in job.transfer_points)
    return own * (1 + 2 * fewer * finer)


def _cost(job: Job, known: Mapping[str, Timing], jobs: Sequence[Job]) -> float:
    timing = known.get(timing_id(job)) or _typical(job, known, jobs)
    return timing.fixed + job.train.updates * timing.update + _rollout(job, timing.update)


def _typical(job: Job, known: Mapping[str, Timing], jobs: Sequence[Job]) -> Timing:
    """The median of what is known, of the same dimension if there is any, scaled to the job's grid."""
    alike = {timing_id(other): other for other in jobs if timing_id(other) in known}
    same = [j for j in alike.values() if j.task.num_spatial_dims == job.task.num_spatial_dims]
    sample = same or list(alike.values())
    if not sample:
        return Timing(0.0, 0.0, "")
    timings = [known[timing_id(other)] for other in sample]
    per_point = [t.update / _points(other) for t, other in zip(timings, sample, strict=True)]
    fixed = float(np.median([t.fixed for t in timings]))
    update = 0.0 if job.train.updates == 0 else float(np.median(per_point)) * _points(job)
    return Timing(fixed, update, "")


def _points(job: Job) -> int:
    return job.train.batch_size * job.task.num_points**job.task.num_spatial_dims
