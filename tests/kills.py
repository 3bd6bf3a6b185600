"""Kill a command with SIGKILL at random moments and start it again, as one would after a crash.

Processes are forked from one that has imported the package but not used it: two hundred imports would take
longer than all the rest.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgno.lab.store import Store

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["apebench", "sgno.cli.training", "sgno.lab.job", "sgno.lab.local"])

Start = Callable[[], BaseProcess]


def sgno(*arguments: object) -> Start:
    """A command of `sgno`, to be started."""
    return lambda: _started(_sgno, *map(str, arguments))


def study(out: Path, cache: Path, seeds: int, updates: int) -> Start:
    """A study of tiny jobs, whose checkpoints follow each other closely, to be started."""
    return lambda: _started(_study, str(out), str(cache), str(seeds), str(updates))


def _started(main: Callable[..., None], *arguments: str) -> BaseProcess:
    process = _FORKS.Process(target=main, args=arguments)
    process.start()
    return process


def _sgno(*arguments: str) -> None:
    from sgno.cli.app import app

    _silence()
    app(arguments)


def _study(*arguments: str) -> None:
    from tiny_study import main

    _silence()
    main(*arguments)


def _silence() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)


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


def finish(start: Start) -> float:
    """Run a command to its end; gives the seconds it took."""
    began, process = time.monotonic(), start()
    process.join(1200)
    assert process.exitcode == 0
    return time.monotonic() - began


def kill_often(start: Start, root: Path, *, kills: int, longest: float, rng: np.random.Generator) -> Killed:
    """Start a command that fills the store at `root` and kill it, at most `kills` times, until it ends.

    Half of the kills come at a random moment within `longest` seconds. The others wait from there on for the
    next file that is being written. Every second time the children are killed too; otherwise they outlive the
    command and must not be in the way.
    """
    done, records = [], {}
    while len(done) < kills:
        before = _half_written(root)
        began, process = time.monotonic(), start()
        being_written = lambda before=before: _half_written(root) - before
        patience = longest if rng.random() < 0.5 else 0.0
        if not _outlived(process, being_written, rng.uniform(0, longest), patience):
            assert process.exitcode == 0
            return Killed(tuple(done), True, records)
        assert process.pid is not None
        for pid in (process.pid, *(_children(process.pid) if len(done) % 2 else [])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.join()
        seconds = time.monotonic() - began
        for path in root.glob("jobs/[!.]*/record.json"):
            records.setdefault(path.parent.name, path.read_bytes())
        done.append(Kill(round(seconds, 3), tuple(map(_plain, being_written())), len(records)))
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


def _outlived(
    process: BaseProcess, being_written: Callable[[], set[Path]], seconds: float, patience: float
) -> bool:
    """Whether the process still runs after that many seconds, and from then on until something is being
    written or patience ends."""
    process.join(seconds)
    end = time.monotonic() + patience
    while process.is_alive() and time.monotonic() < end and not being_written():
        time.sleep(5e-4)
    return process.is_alive()


def _half_written(root: Path) -> set[Path]:
    return {*root.glob(".*.part"), *root.glob("*/.*.part")}


def _plain(path: Path) -> str:
    """`jobs` or `checkpoints`, and the suffix: names are hashes."""
    return f"{path.parent.name}/*{''.join(path.suffixes[:-2])}"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
