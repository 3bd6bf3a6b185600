"""Several fresh processes that take turns, and what their repeats amount to."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from benchmarks.speed.cases import Case, Group

Say = Callable[[str], None]


class Worker:
    """One case in a process of its own, stopped between repeats."""

    def __init__(self, case: Case, programs: str):
        self.case = case
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `stop` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed.worker", json.dumps(case.to_json())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # A cache of its own, empty at first: another one would hide what compiling takes.
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": programs}
            | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        )

    def listen(self) -> dict[str, Any]:
        """The next report: of a repeat, or `missing`, or `failed` if the process died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-1:] or ["no message"]
        return {"failed": f"exit code {self._process.returncode}: {last[0]}"}

    def go(self) -> dict[str, Any]:
        """Let it make one more repeat."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.listen()

    def stop(self) -> None:
        """End the process; it is waiting for a line and gets the end of the input instead."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


def measure(group: Group, say: Say = lambda text: None) -> list[dict[str, Any]]:
    """Measure all cases of a group: each compiles and warms up alone, then they take turns.

    **Arguments:**

    - `group`: what to measure. It stops after `repeats` rounds, or sooner once `seconds` have passed.
    - `say`: hears what is going on.

    **Returns:**

    One record per case, in order: the case, its `seconds` per unit (median) with `spread` (lowest and
    highest), `compile_seconds` (what the first run took longer), `first_peak_megabytes` above the imports
    with compiling and, if the group asks for it, `peak_megabytes` of a process that finds everything
    compiled. A case that cannot run has `missing` or `failed`.
    """
    with tempfile.TemporaryDirectory() as programs:
        records = _timed(group, programs, say)
        for i, (case, record) in enumerate(zip(group.cases, records, strict=True)):
            if group.memory and record["repeats"]:
                say(f"{group.name}: {case.label}, memory")
                record["peak_megabytes"] = _peak(case, f"{programs}/{i}")
    return [_summarised(record) for record in records]


def _peak(case: Case, programs: str) -> float:
    """The peak of a second process in its second repeat: compiling and tracing are not the work."""
    worker = Worker(case, programs)
    try:
        worker.listen()
        return worker.go().get("peak_megabytes", 0.0)
    finally:
        worker.stop()


def _timed(group: Group, programs: str, say: Say) -> list[dict[str, Any]]:
    """All cases of a group in turn."""
    workers: list[Worker] = []
    records: list[dict[str, Any]] = []
    try:
        for i, case in enumerate(group.cases):
            say(f"{group.name}: {case.label}")
            worker = Worker(case, f"{programs}/{i}")
            workers.append(worker)
            first = worker.listen()
            record: dict[str, Any] = {"case": case.to_json(), "repeats": []}
            records.append(record)
            if not _take(record, first, "first"):
                continue
            warm_up = worker.go()
            # A repeat that lasts seconds needs no warm-up, and repeating it would take minutes.
            _take(record, warm_up, "repeat" if warm_up.get("seconds", 0) > 3 else "warm-up")
        start = time.monotonic()
        for round_number in range(group.repeats):
            if round_number >= 1 and time.monotonic() - start > group.seconds:
                break
            for worker, record in zip(workers, records, strict=True):
                if "missing" not in record and "failed" not in record:
                    _take(record, worker.go(), "repeat")
    finally:
        for worker in workers:
            worker.stop()
    return records


def _take(record: dict[str, Any], report: dict[str, Any], role: str) -> bool:
    """Add one report to a record; false if the case cannot go on."""
    for problem in ("missing", "failed"):
        if problem in report:
            record[problem] = report[problem]
            return False
    if role == "first":
        record["first_seconds"], record["first_units"] = report["seconds"], report["units"]
        record["first_peak_megabytes"] = report["peak_megabytes"]
        return True
    if role == "repeat":
        record["repeats"].append(report["seconds"] / report["units"])
    return True


def _summarised(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its median and spread."""
    times = record["repeats"]
    if not times:
        return record
    median = statistics.median(times)
    compiling = max(record["first_seconds"] - record["first_units"] * median, 0.0)
    return {**record, "seconds": median, "spread": [min(times), max(times)], "compile_seconds": compiling}
