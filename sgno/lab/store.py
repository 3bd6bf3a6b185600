"""Finished jobs on disk. No jax here: reports read it too.

    ROOT/jobs/ID/record.json           settings, versions, machine, date, scores
    ROOT/jobs/ID/curves.safetensors    errors per step, spectra, losses
    ROOT/jobs/ID/sample.safetensors    one predicted test trajectory, for pictures (thinned: of one seed)
    ROOT/jobs/ID/weights.safetensors   the trained step
    ROOT/jobs/ID/metrics.jsonl         loss and speed while it was trained
    ROOT/truth/DATA.safetensors        the same test trajectory of the reference
    ROOT/checkpoints/ID.safetensors    a run that is under way, and its metrics so far (ID.jsonl)
    ROOT/failed/ID.json                a job that ended in an error
    ROOT/claims/ID                     held by the process that works on the job
    ROOT/timings/ID.json               what a setting costs on this machine, for estimates
    ROOT/frontier.json                 SGNO-X against the solver, if it was measured

A job's folder appears whole: it is filled beside and renamed last. `sgno.lab.thin` makes a store small.
Version 0.1 wrote arrays as `.sgno` files, which are read where they are found.

Others may be able to write to the folder too. So no link in it is followed, what is deleted is known to be
ours, and a record without its checksum is none.
"""

import contextlib
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.io.commit import make_folder, sweep
from sgno.io.files import SUFFIX, Arrays, load_arrays, read_json, read_sealed, stored, write_json
from sgno.io.locks import claim
from sgno.lab.compact import decode

CURVES, SAMPLE, WEIGHTS = (name + SUFFIX for name in ("curves", "sample", "weights"))
_FOLDERS = ("jobs", "truth", "checkpoints", "failed", "claims", "timings")
# What a run that is under way keeps, by the id of its job.
_UNDER_WAY = re.compile(r"(?P<id>[0-9a-f]{16})(\.safetensors|\.sgno|\.jsonl)?")


class Store:
    """A folder of finished jobs."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise InputError(f"{self.root} is a file, but results go to a folder. Choose another --out.")

    def create(self) -> "Store":
        """Make sure that results can be written before anything is computed for them."""
        make_folder(self._inside("jobs"))
        return self

    def job(self, job_id: str) -> Path:
        return self._inside("jobs", job_id)

    def weights(self, job_id: str) -> Path:
        return self._stored("jobs", job_id, WEIGHTS)

    def sample(self, job_id: str) -> Path:
        return self._stored("jobs", job_id, SAMPLE)

    def checkpoint(self, job_id: str) -> Path:
        return self._stored("checkpoints", f"{job_id}{SUFFIX}")

    def metrics(self, job_id: str) -> Path:
        """The metrics of a run that is under way."""
        return self._inside("checkpoints", f"{job_id}.jsonl")

    def truth(self, data_id: str) -> Path:
        return self._stored("truth", f"{data_id}{SUFFIX}")

    def timing(self, timing_id: str) -> Path:
        return self._inside("timings", f"{timing_id}.json")

    @property
    def frontier(self) -> Path:
        return self._inside("frontier.json")

    def _stored(self, *names: str) -> Path:
        return self._inside(*names[:-1], stored(self._inside(*names)).name)

    def _inside(self, *names: str) -> Path:
        """A place in the store, which no link leads out of.

        **Raises:** `InputError` if there is a link on the way.
        """
        path = self.root
        for name in names:
            if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
                raise InputError(f"{name!r} is no name of a job or a file in {self.root}.")
            path = path / name
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link, and links inside a folder of runs are not followed. Put the "
                    "file or folder itself there."
                )
        return path

    def claim(
        self, job_id: str, *, on_wait: Callable[[str], None] | None = None
    ) -> contextlib.AbstractContextManager[bool]:
        """Hold a job while it runs; gives False if another process holds it, unless told to wait for that."""
        make_folder(self._inside("claims"))
        return claim(self._inside("claims", job_id), on_wait=on_wait)

    def sweep(self) -> None:
        """Remove what killed processes left: half-written files, checkpoints and claims of finished jobs."""
        sweep(self.root)
        for name in _FOLDERS:
            if not (self.root / name).is_symlink():
                sweep(self.root / name)
        for name in ("checkpoints", "claims"):
            for path in self._files(name):
                found = _UNDER_WAY.fullmatch(path.name)
                if found and self.is_finished(found["id"]):
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _files(self, name: str) -> list[Path]:
        """The files, no links, in one of the folders."""
        if (self.root / name).is_symlink():
            return []
        return [path for path in sorted(self.root.glob(f"{name}/*")) if stat.S_ISREG(path.lstat().st_mode)]

    def is_finished(self, job_id: str) -> bool:
        return self._inside("jobs", job_id, "record.json").is_file()

    def record(self, job_id: str) -> dict[str, Any]:
        """What a finished job wrote down."""
        return read_sealed(self._inside("jobs", job_id, "record.json"))

    def curves(self, job_id: str) -> Arrays:
        return decode(load_arrays(self._stored("jobs", job_id, CURVES)))

    def ids(self) -> list[str]:
        """The ids of all finished jobs, in a stable order; their records may be damaged."""
        names = (path.parent.name for path in self.root.glob("jobs/*/record.json"))
        return sorted(name for name in names if not name.startswith("."))

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of all finished jobs, in the order of their ids."""
        return map(self.record, self.ids())

    def fail(self, job_id: str, content: dict[str, Any]) -> None:
        """Record a job that ended in an error."""
        write_json(self._inside("failed", f"{job_id}.json"), content)

    def failures(self) -> Iterator[dict[str, Any]]:
        """What is known of jobs that ended in an error; where the report of one is damaged, that it is."""
        for path in self._files("failed"):
            if path.suffix != ".json" or self.is_finished(path.stem):
                continue
            try:
                content = read_json(path)
                if not isinstance(content, dict):
                    raise InputError(f"{path} is not the report of a failed job. Delete it.")
            except (InputError, OSError) as error:
                content = {"id": path.stem, "error": str(error)}
            yield content

    def forget_failure(self, job_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._inside("failed", f"{job_id}.json").unlink()
