"""A worker process: calls come as lines on standard input, answers leave as lines on standard output.

    python -m sgno.lab.worker CORE

It stays on one core, so that XLA uses one thread and workers do not get in each
other's way. When its input ends, because the study is over or was killed, it stops: at once if idle,
otherwise with a checkpoint.
"""

import _thread
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

# How long a checkpoint may take after the input has ended.
_GRACE_SECONDS = 30.0


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        # Before jax is imported: XLA counts the cores it may use when it starts.
        os.sched_setaffinity(0, {int(sys.argv[1])})
    _keep_priority()
    # A shell's background job inherits an ignored SIGINT, by which the listener interrupts a run.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A scheduler that ends a job sends this to all of its processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Libraries may print; only messages may reach the pipe.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    calls: queue.SimpleQueue[dict | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    try:
        _serve(calls, answers)
    except KeyboardInterrupt:
        # Exit without waiting for threads: the checkpoint is written.
        os._exit(130)


def _keep_priority() -> None:
    """Let `nice sgno reproduce` mean its workers too: each is a session of its own, and Linux weighs sessions
    by a value that `nice` does not set."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))


def _listen(calls: "queue.SimpleQueue[dict | None]") -> None:
    for line in sys.stdin.buffer:
        calls.put(json.loads(line))
    calls.put(None)
    _thread.interrupt_main()
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _serve(calls: "queue.SimpleQueue[dict | None]", answers) -> None:
    from sgno.lab.executor import encode
    from sgno.lab.perform import perform

    while (call := calls.get()) is not None:

        def send(kind: str, content: dict, call_id: str = call["id"]) -> None:
            try:
                answers.write(encode({"kind": kind, "id": call_id, "content": content}))
            except BrokenPipeError as error:
                # The study is gone. As after Ctrl-C, the run ends with a checkpoint.
                raise KeyboardInterrupt from error

        send("done", perform(call, send))


if __name__ == "__main__":
    main()
