"""Kill a command with SIGKILL at random moments and start it again, as one would after a crash."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgno.study.store import Store

_SCRIPT = Path(__file__).with_name("tiny_study.py")


def study(out: Path, cache: Path, seeds: int, updates: int) -> list[str]:
    """The command of a study of tiny jobs, whose checkpoints follow each other closely."""
    return [sys.executable, str(_SCRIPT), str(out), str(cache), str(seeds), str(updates)]


class Kill(NamedTuple):
    """When it came, what was half-written then, and how many jobs were finished."""

    seconds: float
    half_written: tuple[str, ...]
    finished: int


class Killed(NamedTuple):
    """What became of a command: its kills, whether it reached its end in spite of them, and the records that
    were finished at any kill, as they were first seen."""

    kills: tuple[Kill, ...]
    ended: bool
    records: dict[str, bytes]


def finish(command: list[str]) -> float:
    """Run a command to its end; gives the seconds it took."""
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1200)
    return time.monotonic() - began


def kill_often(
    command: list[str], root: Path, *, kills: int, longest: float, rng: np.random.Generator
) -> Killed:
    """Start a command that fills the store at `root` and kill it, at most so many times, until it ends.

    Half of the kills come at a random moment within `longest` seconds. The others wait from there on for the
    next file that is being written. Every second time the children are killed too; otherwise they outlive the
    command and must not be in the way.
    """
    done, records = [], {}
    while len(done) < kills:
        began = time.monotonic()
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        if not _outlived(process, root, rng.uniform(0, longest), longest if rng.random() < 0.5 else 0.0):
            assert process.wait() == 0, f"{command} ended with {process.returncode}"
            return Killed(tuple(done), True, records)
        family = _children(process.pid) if len(done) % 2 else []
        for pid in (process.pid, *family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        seconds = time.monotonic() - began
        for path in root.glob("jobs/[!.]*/record.json"):
            records.setdefault(path.parent.name, path.read_bytes())
        done.append(Kill(round(seconds, 3), tuple(map(_plain, _half_written(root))), len(records)))
    return Killed(tuple(done), False, records)


def check(killed: Killed, store: Store, whole: Store, ids: set[str]) -> None:
    """Every result is there once, is the first that was finished, and equals that of `whole` bit for bit."""
    from tiny_study import result

    assert {path.name for path in (store.root / "jobs").iterdir() if path.name[0] != "."} == ids
    for job_id in ids:
        assert result(store, job_id) == result(whole, job_id)
    for job_id, record in killed.records.items():
        assert (store.job(job_id) / "record.json").read_bytes() == record, "a finished job ran twice"
    assert not list(store.failures())


def _outlived(process: subprocess.Popen, root: Path, seconds: float, patience: float) -> bool:
    """Whether the process still runs after so many seconds, and from then on until something is half-written
    or patience ends."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    end = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < end and not _half_written(root):
        time.sleep(5e-4)
    return process.poll() is None


def _half_written(root: Path) -> list[Path]:
    return [*root.glob(".*.part"), *root.glob("*/.*.part")]


def _plain(path: Path) -> str:
    """`jobs` or `checkpoints`, and the suffix: names are hashes."""
    return f"{path.parent.name}/*{''.join(path.suffixes[:-2])}"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
