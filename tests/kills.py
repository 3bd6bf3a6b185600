"""Kill a study with SIGKILL at random moments and start it again, as one would after a crash."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from sgno.study.store import Store

_SCRIPT = Path(__file__).with_name("tiny_study.py")


def start(out: Path, cache: Path, seeds: int, updates: int) -> subprocess.Popen:
    arguments = [str(_SCRIPT), str(out), str(cache), str(seeds), str(updates)]
    return subprocess.Popen([sys.executable, *arguments], start_new_session=True)


def finish(out: Path, cache: Path, seeds: int, updates: int) -> float:
    """Run a study to its end; gives the seconds it took."""
    began = time.monotonic()
    process = start(out, cache, seeds, updates)
    assert process.wait(timeout=1200) == 0
    return time.monotonic() - began


def kill_often(
    out: Path, cache: Path, *, seeds: int, updates: int, kills: int, longest: float, rng: np.random.Generator
) -> dict[str, bytes]:
    """Start the study and kill it, so many times, each within `longest` seconds.

    Every second time its workers are killed with it; otherwise they outlive it and must not be in the way.

    **Returns:** the records that were finished at any kill, as they were first seen.
    """
    store, seen = Store(out), {}
    for number in range(kills):
        process = start(out, cache, seeds, updates)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=rng.uniform(0, longest))
        family = _children(process.pid) if number % 2 else []
        for pid in (process.pid, *family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for path in store.root.glob("jobs/*/record.json"):
            if not path.parent.name.startswith("."):
                seen.setdefault(path.parent.name, path.read_bytes())
    return seen


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
