"""What a worker does with a call: run a job, or measure what its setting costs."""

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgno.errors import StorageError, memory_message
from sgno.lab.estimate import measure
from sgno.lab.job import Job, run_job
from sgno.lab.machine import forget_programs, use_compilation_cache
from sgno.lab.store import Store
from sgno.training import Progress

Tell = Callable[[str, dict[str, Any]], None]


def perform(call: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Answer a call. Errors are answers too; only an interrupt ends the worker.

    **Arguments:**

    - `call`: see `sgno.lab.executor`.
    - `tell`: takes `started` or `progress` and its content while the call is under way.
    """
    job, cache = Job.from_json(call["job"]), Path(call["cache"])
    store = Store(call["store"])
    use_compilation_cache(cache)
    forget_programs()
    if call["what"] == "measure":
        return _measured(job, store, cache)
    try:
        with store.claim(job.id) as granted:
            if not granted:
                return {"outcome": "busy"}
            tell("started", {})
            return _run(job, store, cache, call["checkpoint_seconds"], tell)
    except StorageError as error:
        # No fault of this job, and the next would meet it too.
        return {"outcome": "refused", "error": str(error)}


def _run(job: Job, store: Store, cache: Path, checkpoint_seconds: float, tell: Tell) -> dict[str, Any]:
    def on_progress(progress: Progress) -> None:
        loss = float(progress.loss)
        content = {
            "update": progress.update,
            "updates": progress.updates,
            "loss": loss if math.isfinite(loss) else None,
            "updates_per_second": progress.updates_per_second,
        }
        tell("progress", content)

    try:
        record = run_job(
            job,
            store,
            cache=cache,
            on_progress=on_progress,
            checkpoint_seconds=checkpoint_seconds,
            claimed=True,
        )
    except StorageError:
        raise
    except Exception as error:  # Whatever goes wrong in one job is recorded and must not stop the others.
        return failed(job, store, error)
    return {"outcome": "finished", "gmean100": record["gmean100"], "seconds": record["seconds"]}


def failed(job: Job, store: Store, error: Exception) -> dict[str, Any]:
    """Record a job that ended in an error, with its traceback."""
    message = memory_message(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"
    trace = "".join(traceback.format_exception(error))
    store.fail(job.id, {"id": job.id, "job": job.to_json(), "error": message, "traceback": trace})
    return {"outcome": "failed", "error": message}


def _measured(job: Job, store: Store, cache: Path) -> dict[str, Any]:
    try:
        return {"outcome": "finished", "timing": measure(job, store, cache).to_json()}
    except Exception as error:  # The job itself will meet the same error and record it.
        return {"outcome": "failed", "error": str(error)}
