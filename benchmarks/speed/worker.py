"""The process in which one case runs: `python -m benchmarks.speed.worker CASE`, CASE being JSON.

It writes one JSON line after each repeat and waits for a line before the next, so that the process that
started it can let several workers take turns. The first repeat includes compilation.
"""

import json
import os
import sys
import time
from typing import IO

from benchmarks.speed.cases import Case
from sgno.lab.machine import forget_peak, give_back, peak_bytes


class Finished(Exception):
    """The reader has heard enough."""


class Meter:
    """Times what happens between two ticks, leaving out the wait for permission to go on."""

    def __init__(self, out: IO[str], go: IO[str], baseline: float):
        self._out, self._go, self._baseline = out, go, baseline
        self._resumed = time.perf_counter()

    def tick(self, units: int) -> None:
        """Report the seconds since the last tick, in which `units` pieces of work were done."""
        seconds = time.perf_counter() - self._resumed
        self.say(seconds=seconds, units=units, peak_megabytes=_peak_megabytes() - self._baseline)
        if self._go.readline().strip() != "go":
            raise Finished
        # Every repeat counts its own peak, so that the first alone has what compiling takes.
        give_back()
        forget_peak()
        self._resumed = time.perf_counter()

    def say(self, **fields) -> None:
        print(json.dumps(fields), file=self._out, flush=True)


def _peak_megabytes() -> float:
    return (peak_bytes() or 0) / 1e6


def main() -> None:
    """Run the case in `argv` until told to stop."""
    case = Case.from_json(json.loads(sys.argv[1]))
    # Libraries print as they please: keep the real standard output for the protocol.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from benchmarks.speed.works import MissingSubject, load

    try:
        work = load(case)
    except MissingSubject as error:
        print(json.dumps({"missing": str(error)}), file=out, flush=True)
        return
    meter = Meter(out, sys.stdin, _peak_megabytes())
    try:
        work(meter.tick)
    except Finished:
        return


if __name__ == "__main__":
    main()
