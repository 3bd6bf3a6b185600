"""Jobs on processes of this machine, one per core."""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from sgno.devices import cores
from sgno.errors import LESS_MEMORY, InputError
from sgno.lab.executor import Event, drain, encode

# How long workers may take to write a checkpoint after Ctrl-C.
_STOP_SECONDS = 20.0
_LOG_BYTES = 4000


class _Worker:
    """One process, the call it is busy with, and what it wrote to standard error."""

    def __init__(self, core: int, heard: "queue.Queue[tuple[_Worker, dict | None]]"):
        self.call_id: str | None = None
        self.core = core
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        # Its own session: Ctrl-C reaches the study alone, which then ends the workers in order.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sgno.lab.worker", str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            bufsize=0,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(heard,), daemon=True).start()

    def _listen(self, heard: "queue.Queue[tuple[_Worker, dict | None]]") -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                # A killed process may leave half a line.
                if line.endswith(b"\n"):
                    heard.put((self, json.loads(line)))
        heard.put((self, None))

    def send(self, call: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.call_id = call["id"]
        try:
            self.process.stdin.write(encode(call))
        except BrokenPipeError:
            # It has just died; its listener reports that, and the call with it.
            return

    def close_input(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            return

    def last_words(self) -> dict[str, str]:
        """Why the process ended, as far as one can see from outside."""
        code = self.process.wait()
        reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if -code in (signal.SIGKILL, signal.SIGABRT):
            # The kernel kills, and compilers abort.
            reason += f" (often for want of memory: {LESS_MEMORY})"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - _LOG_BYTES))
        return {
            "error": f"The worker process ended with {reason}.",
            "log": self.log.read().decode(errors="replace"),
        }


class LocalProcesses:
    """An executor of long-lived processes, each on its own core.

    **Arguments:**

    - `workers`: how many; as many as there are cores available to this process by default.
    """

    def __init__(self, workers: int | None = None):
        if workers is not None and workers < 1:
            raise InputError(f"workers={workers} must be at least 1.")
        self._slots = workers or len(cores())
        self._free_cores = list(itertools.islice(itertools.cycle(cores()), self._slots))
        self._workers: list[_Worker] = []
        self._heard: queue.Queue[tuple[_Worker, dict | None]] = queue.Queue()

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def submit(self, call: dict[str, Any]) -> None:
        idle = next((worker for worker in self._workers if worker.call_id is None), None)
        if idle is None:
            idle = _Worker(self._free_cores.pop(0), self._heard)
            self._workers.append(idle)
        idle.send(call)

    def events(self, timeout: float) -> Iterator[Event]:
        for worker, message in drain(self._heard, timeout):
            if message is None:
                yield from self._bury(worker)
            else:
                if message["kind"] == "done":
                    worker.call_id = None
                yield Event(message["kind"], message["id"], message["content"])

    def _bury(self, worker: _Worker) -> Iterator[Event]:
        """Give a dead worker's core to the next one, and report the call it was busy with."""
        self._workers.remove(worker)
        self._free_cores.insert(0, worker.core)
        words = worker.last_words()
        worker.close_input()
        worker.log.close()
        if worker.call_id is not None:
            yield Event("lost", worker.call_id, words)

    def __enter__(self) -> "LocalProcesses":
        return self

    def __exit__(self, kind, error, trace) -> None:
        for worker in self._workers:
            worker.close_input()
        for worker in self._workers:
            try:
                worker.process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.log.close()
        self._workers.clear()
