"""Run the jobs of a study on an executor, whatever that is made of.

An executor hands calls to workers and reports what they say. A call is plain JSON and so is every answer,
so local processes and a cluster run the same `sgno.lab.perform.perform`.
"""

import json
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from sgno.errors import StorageError
from sgno.lab.job import CHECKPOINT_SECONDS, Job
from sgno.lab.store import Store

# How often a job whose worker died is given to another.
MOST_RETRIES = 2
# How soon to ask again for a job that another study holds.
BUSY_SECONDS = 1.0


class Event(NamedTuple):
    """What became of a call.

    `started` and `progress` come while it runs; `done` brings the answer; `lost` says that its worker died.
    """

    kind: Literal["started", "progress", "done", "lost"]
    id: str
    content: dict[str, Any]


Heard = TypeVar("Heard")


def drain(heard: "queue.Queue[Heard]", timeout: float) -> list[Heard]:
    """All that is in a queue, waiting at most `timeout` seconds for a first entry."""
    try:
        entries = [heard.get(timeout=timeout)]
    except queue.Empty:
        return []
    while not heard.empty():
        entries.append(heard.get())
    return entries


@runtime_checkable
class Executor(Protocol):
    """Workers that take calls. Used as a context manager; leaving it stops the workers, with checkpoints."""

    @property
    def slots(self) -> int:
        """How many calls can run at once."""
        ...

    def submit(self, call: dict[str, Any]) -> None:
        """Hand a call, which has an `id`, to a free worker."""
        ...

    def events(self, timeout: float) -> Iterable[Event]:
        """What happened since the last call, waiting at most `timeout` seconds for something to happen."""
        ...

    def __enter__(self) -> "Executor": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class News(NamedTuple):
    """A change in the state of one job, for whoever watches a study."""

    kind: Literal["started", "progress", "finished", "failed", "lost", "busy"]
    job: Job
    content: dict[str, Any]


class Outcome(NamedTuple):
    """How a study ended: ids of the jobs that are in the store, and of those that failed."""

    finished: tuple[str, ...]
    failed: tuple[str, ...]


def run_study(
    jobs: Sequence[Job],
    store: Store,
    executor: Executor,
    *,
    cache: Path,
    watch: Callable[[News], None] = lambda news: None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Outcome:
    """Bring every job into the store, going on from whatever is there already.

    A job that ends in an error is recorded and the others go on. A job whose worker dies is given to another,
    at most twice. A job that another study holds is left to it, and taken up if that study dies.

    **Returns:** which jobs are finished and which failed.

    **Raises:** `StorageError` if the store or the cache takes no more: no other job could be kept either.
    """
    store.create().sweep()
    waiting = {job.id: job for job in jobs}
    running: dict[str, Job] = {}
    ask_again: dict[str, float] = {}
    losses: dict[str, int] = {}
    failed: list[str] = []

    def settle(job: Job, content: dict[str, Any]) -> None:
        """Decide what the end of a call means for its job."""
        if content["outcome"] == "busy":
            waiting[job.id], ask_again[job.id] = job, time.monotonic() + BUSY_SECONDS
        elif content["outcome"] == "refused":
            raise StorageError(content["error"])
        elif content["outcome"] == "failed":
            failed.append(job.id)
        watch(News(content["outcome"], job, content))

    def lose(job: Job, content: dict[str, Any]) -> None:
        losses[job.id] = losses.get(job.id, 0) + 1
        if losses[job.id] <= MOST_RETRIES:
            waiting[job.id] = job
            watch(News("lost", job, content))
            return
        error = f"Its worker died {losses[job.id]} times. {content.get('error', '')}".strip()
        store.fail(
            job.id, {"id": job.id, "job": job.to_json(), "error": error, "traceback": content.get("log", "")}
        )
        settle(job, {"outcome": "failed", "error": error})

    while waiting or running:
        now, free = time.monotonic(), executor.slots - len(running)
        for job in [job for job in waiting.values() if ask_again.get(job.id, now) <= now]:
            if free == 0:
                break
            del waiting[job.id]
            if store.is_finished(job.id):
                # Before this study, or meanwhile by another one.
                watch(News("finished", job, {"outcome": "finished", "found": True}))
                continue
            running[job.id], free = job, free - 1
            executor.submit(_call(job, store, cache, checkpoint_seconds))
        for event in executor.events(timeout=0.5):
            job = running.get(event.id)
            if job is None:
                continue
            if event.kind in ("started", "progress"):
                watch(News(event.kind, job, event.content))
                continue
            del running[event.id]
            if event.kind == "lost":
                lose(job, event.content)
            else:
                settle(job, event.content)
    # A worker that outlived its killed study may have died since, in the middle of a file.
    store.sweep()
    finished = tuple(job.id for job in jobs if store.is_finished(job.id))
    return Outcome(finished, tuple(failed))


def _call(job: Job, store: Store, cache: Path, checkpoint_seconds: float) -> dict[str, Any]:
    return {
        "what": "run",
        "id": job.id,
        "job": job.to_json(),
        "store": str(store.root.absolute()),
        "cache": str(cache.absolute()),
        "checkpoint_seconds": checkpoint_seconds,
    }


def encode(message: dict[str, Any]) -> bytes:
    """A message as one line of JSON."""
    return json.dumps(message, allow_nan=False).encode() + b"\n"
