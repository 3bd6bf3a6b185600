"""Finished jobs on disk. No jax here: reports read it too.

    ROOT/jobs/ID/record.json           settings, versions, machine, date, scores
    ROOT/jobs/ID/curves.safetensors    errors per step, spectra, losses
    ROOT/jobs/ID/sample.safetensors    one predicted test trajectory, for pictures
    ROOT/jobs/ID/weights.safetensors   the trained step
    ROOT/jobs/ID/metrics.jsonl         loss and speed while it was trained
    ROOT/truth/DATA.safetensors        the same test trajectory of the reference
    ROOT/checkpoints/ID.safetensors    a run that is under way, and its metrics so far (ID.jsonl)
    ROOT/failed/ID.json                a job that ended in an error
    ROOT/claims/ID                     held by the process that works on the job
    ROOT/timings/ID.json               what a setting costs on this machine, for estimates
    ROOT/frontier.json                 SGNO-X against the solver, if it was measured

A job's folder appears whole: it is filled beside and renamed last. Version 0.1 wrote arrays as `.sgno` files,
which are read where they are found.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.io.files import (
    SUFFIX,
    Arrays,
    load_arrays,
    make_folder,
    read_json,
    read_sealed,
    stored,
    sweep,
    write_json,
)
from sgno.io.locks import claim

CURVES, SAMPLE, WEIGHTS = (name + SUFFIX for name in ("curves", "sample", "weights"))


class Store:
    """A folder of finished jobs."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file, but results go to a folder. Choose another --out.")

    def create(self) -> "Store":
        """Make sure that results can be written before anything is computed for them."""
        make_folder(self.root / "jobs")
        return self

    def job(self, job_id: str) -> Path:
        return self.root / "jobs" / job_id

    def weights(self, job_id: str) -> Path:
        return stored(self.job(job_id) / WEIGHTS)

    def sample(self, job_id: str) -> Path:
        return stored(self.job(job_id) / SAMPLE)

    def checkpoint(self, job_id: str) -> Path:
        return stored(self.root / "checkpoints" / f"{job_id}{SUFFIX}")

    def metrics(self, job_id: str) -> Path:
        """The metrics of a run that is under way."""
        return self.root / "checkpoints" / f"{job_id}.jsonl"

    def truth(self, data_id: str) -> Path:
        return stored(self.root / "truth" / f"{data_id}{SUFFIX}")

    def timing(self, timing_id: str) -> Path:
        return self.root / "timings" / f"{timing_id}.json"

    @property
    def frontier(self) -> Path:
        return self.root / "frontier.json"

    def claim(
        self, job_id: str, *, on_wait: Callable[[str], None] | None = None
    ) -> contextlib.AbstractContextManager[bool]:
        """Hold a job while it runs; gives False if another process holds it, unless told to wait for that."""
        return claim(make_folder(self.root / "claims") / job_id, on_wait=on_wait)

    def sweep(self) -> None:
        """Remove what killed processes left: half-written files, checkpoints and claims of finished jobs."""
        for folder in (self.root, *self.root.glob("*/")):
            sweep(folder)
        for path in (*self.root.glob("checkpoints/*"), *self.root.glob("claims/*")):
            if self.is_finished(path.stem):
                with contextlib.suppress(OSError):
                    path.unlink()

    def is_finished(self, job_id: str) -> bool:
        return (self.job(job_id) / "record.json").is_file()

    def record(self, job_id: str) -> dict[str, Any]:
        """What a finished job wrote down."""
        return read_sealed(self.job(job_id) / "record.json")

    def curves(self, job_id: str) -> Arrays:
        return load_arrays(stored(self.job(job_id) / CURVES))

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of all finished jobs, in a stable order."""
        for path in sorted(self.root.glob("jobs/*/record.json")):
            if not path.parent.name.startswith("."):
                yield read_sealed(path)

    def fail(self, job_id: str, content: dict[str, Any]) -> None:
        """Record a job that ended in an error."""
        write_json(self.root / "failed" / f"{job_id}.json", content)

    def failures(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.root.glob("failed/*.json")):
            if not self.is_finished(path.stem):
                yield read_json(path)

    def forget_failure(self, job_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.root / "failed" / f"{job_id}.json").unlink()
