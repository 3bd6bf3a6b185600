"""Which model for these data: the candidates in turn, the cheapest first, judged by held-out forecasts.

Every candidate is a job of the store like any other. What was tried is written down after each of them
(ROOT/auto/ID.json), so the same call answers at once and an interrupted one goes on.
"""

import contextlib
import dataclasses
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sgno.errors import InputError, StorageError
from sgno.identify.equation.data import noise_level
from sgno.identify.equation.flow import Box
from sgno.io.files import content_id, read_sealed, seal, write_json
from sgno.io.plain import decode
from sgno.io.split import excerpt
from sgno.lab.data.own import OwnTask
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.estimate import time_updates
from sgno.lab.job import Job
from sgno.lab.perform import failed
from sgno.lab.store import Store
from sgno.solve.forecast_horizon import percent
from sgno.solve.metrics import HORIZON
from sgno.spectral import to_modes

CANDIDATES = ("persistence", "linear", "equation", "sgno-x-start", "sgno", "fno")
MINUTES = 5.0
# Beside the first candidates, which take seconds, there is always something to fall back to.
_ALWAYS = ("persistence", "linear")
# A rollout this close is at the rounding of its float32 reference, as for the start of SGNO-X.
_FLOOR = 2e-5
# The best score of a network in the paper's tables, by 10,000 updates: SGNO on dispersion.
_BEST_NETWORK = 8e-4
# With noise of relative size s in truth and initial state, a perfect model scores s or a little more.
_AT_NOISE = 1.1
# What looks like less noise may be the tail of a spectrum: as in the search for an equation.
_NOISY = 5e-4
# Fewer are not worth the compiling, which takes about as long on a small grid.
_FEWEST_UPDATES = 300
_MOST_UPDATES = 10_000
# Of a schedule that is made to fit the time, this share is planned; the rest is for what was measured badly.
_PLANNED = 0.8
# Trajectories that the noise is estimated from.
_LOOKED_AT = 50

_log = logging.getLogger(__name__)

Stopped = Literal["floor", "noise", "all tried"]
Outcome = Literal["tried", "refused", "needless", "out of time", "failed", "running"]


@dataclasses.dataclass(frozen=True)
class Tried:
    """A candidate and what became of it.

    - `outcome`: `tried`, `refused` (it cannot take these data, or lacks a package), `needless`,
        `out of time`, `failed` by an error (kept in the store with its traceback), or `running` while it is
        under way.
    - `error`: geometric mean of the nRMSE over the steps of the validation part; None if it is not finite, or
        was not measured.
    - `reason`: why it has no error.
    """

    model: str
    outcome: Outcome
    error: float | None = None
    updates: int = 0
    seconds: float = 0.0
    job: str | None = None
    reason: str | None = None

    @property
    def score(self) -> float:
        """The error, infinite where there is none."""
        return math.inf if self.error is None else self.error

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Auto:
    """What was tried within `minutes`, what was chosen, and why the search ended.

    `noise` is that of the training data, relative to their size; 0 if there is none to speak of.
    """

    chosen: str
    job: str
    tried: tuple[Tried, ...]
    minutes: float
    noise: float
    stopped: Stopped

    @property
    def best(self) -> Tried:
        return next(each for each in self.tried if each.model == self.chosen)

    @property
    def persistence(self) -> Tried:
        return next(each for each in self.tried if each.model == "persistence")

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.tried)

    def to_json(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return {**plain, "tried": [each.to_json() for each in self.tried], "seconds": self.seconds}


def record_path(store: Store, auto_id: str) -> Path:
    return store.root / "auto" / f"{auto_id}.json"


class Search:
    """The search for the best model of one data set, as far as it has come.

    **Arguments:**

    - `make_job`: a candidate's job from its name and training settings.
    - `identity`: plain data that decide the result: those of the data, seed, training settings.
    - `store`: where finished jobs and the search itself are kept.
    - `minutes`: what all candidates together may take.
    - `updates`: those of networks, if they are given instead of made to fit the time.
    """

    def __init__(
        self,
        make_job: Callable[[str, Mapping[str, Any]], Job],
        identity: Mapping[str, Any],
        store: Store,
        *,
        minutes: float = MINUTES,
        updates: int | None = None,
    ):
        if not 0 < minutes < math.inf:
            raise InputError(
                f"minutes={minutes:g} is no time to try models in. Give a positive number, such as 5."
            )
        self.make_job, self.store, self.minutes, self.updates = make_job, store, minutes, updates
        settings = {**identity, "candidates": list(CANDIDATES), "minutes": minutes}
        self.path = record_path(store, content_id(settings))
        self.found: Auto | None = None
        self.rows: dict[str, Tried] = {}
        if self.path.exists():
            kept = read_sealed(self.path)
            rows = (decode(Tried, row, "a candidate") for row in kept["tried"])
            there = lambda row: row.job is None or store.is_finished(row.job)
            self.rows = {row.model: row for row in rows if there(row)}
            if "chosen" in kept and store.is_finished(kept["job"]):
                names = ("chosen", "job", "minutes", "noise", "stopped")
                self.found = Auto(tried=tuple(self.rows.values()), **{name: kept[name] for name in names})

    def choose(
        self,
        data: Trajectories,
        run: Callable[[Job], dict[str, Any]],
        on_tried: Callable[[Tried], None] = lambda tried: None,
    ) -> Auto:
        """Try the candidates and choose.

        **Arguments:**

        - `data`: those of the jobs, loaded.
        - `run`: runs a job, or answers from the store.
        - `on_tried`: called with each candidate when it is done with.

        **Raises:** `InputError` if there is no validation part to choose by.
        """
        if self.found is not None:
            return self.found
        if data.validation is None:
            raise InputError(
                "Models are compared on a validation part, but these data have none. Give at least three "
                "trajectories and a validation part such as 0.1, or name one --model."
            )
        # Known inputs are further channels.
        task = self.make_job("persistence", {}).task
        channels = task.channels if isinstance(task, OwnTask) else data.train.shape[2]
        noise = _relative_noise(excerpt(data.train)[:, :, :channels])
        stopped: Stopped = "all tried"
        for name in CANDIDATES:
            row = self.rows.get(name)
            if row is None or row.outcome == "running":
                row = self._try(name, row, stopped, data, run)
                self._keep(row)
                on_tried(row)
            if stopped == "all tried" and row.score <= max(_FLOOR, _AT_NOISE * noise):
                stopped = "floor" if row.score <= _FLOOR else "noise"
        # Of equals the cheaper one, which comes first.
        best = min((row for row in self.rows.values() if row.outcome == "tried"), key=lambda row: row.score)
        assert best.job is not None
        rows = tuple(self.rows[name] for name in CANDIDATES)
        self.found = Auto(best.model, best.job, rows, self.minutes, noise, stopped)
        write_json(self.path, seal(self.found.to_json()))
        return self.found

    @property
    def left(self) -> float:
        """Seconds."""
        return 60 * self.minutes - sum(row.seconds for row in self.rows.values())

    def _keep(self, row: Tried) -> None:
        self.rows[row.model] = row
        write_json(self.path, seal({"tried": [each.to_json() for each in self.rows.values()]}))

    def _try(
        self,
        name: str,
        begun: Tried | None,
        stopped: Stopped,
        data: Trajectories,
        run: Callable[[Job], dict[str, Any]],
    ) -> Tried:
        # Half of the time that is left, so that the next one has a chance too.
        began, limit = time.monotonic(), None if name in _ALWAYS else self.left / 2
        seconds = lambda: time.monotonic() - began
        job: Job | None = None
        try:
            job = self.make_job(name, {} if begun is None else {"updates": begun.updates})
            if (skipped := self._skipped(name, stopped, job.train.updates > 0)) is not None:
                return skipped
            with _limited(limit):
                if begun is None and self.updates is None and job.train.updates:
                    updates = self._fitting_updates(job, data)
                    if updates < _FEWEST_UPDATES:
                        reason = (
                            f"{self.minutes:g} minutes leave time for {updates} updates, too few to judge by"
                        )
                        return Tried(name, "out of time", seconds=seconds(), reason=reason)
                    job = self.make_job(name, {"updates": updates})
            if job.train.updates:
                self._keep(Tried(name, "running", updates=job.train.updates))
                # Its schedule was made to fit the time.
                limit = None
            with _limited(None if limit is None else limit - seconds()):
                record = run(job)
        except _OutOfTime:
            reason = "not done within half of the time that was left"
            return Tried(name, "out of time", seconds=seconds(), reason=reason)
        except StorageError:
            raise
        except Exception as error:
            # Data that persistence cannot take are bad input; what one candidate cannot take, another may.
            if name == "persistence":
                raise
            if isinstance(error, InputError) or job is None:
                return Tried(name, "refused", seconds=seconds(), reason=" ".join(str(error).split()))
            reason = failed(job, self.store, error)["error"]
            _log.warning("%s failed, and the search goes on without it: %s", name, reason)
            return Tried(name, "failed", seconds=seconds(), reason=reason)
        error = record["validation"]["gmean100"]
        return Tried(name, "tried", error, job.train.updates, seconds(), job.id)

    def _skipped(self, name: str, stopped: Stopped, network: bool) -> Tried | None:
        """The row of a candidate that need not or cannot be tried."""
        best = min((row.score for row in self.rows.values()), default=math.inf)
        if stopped == "floor":
            return Tried(name, "needless", reason="nothing is left to gain")
        if stopped == "noise":
            return Tried(name, "needless", reason="the error is at the noise already")
        if network and best < _BEST_NETWORK:
            reason = f"no network of the paper gets below {_BEST_NETWORK:g} by 10,000 updates"
            return Tried(name, "needless", reason=reason)
        if name not in _ALWAYS and self.left <= 0:
            return Tried(name, "out of time", reason=f"{self.minutes:g} minutes are over")
        return None

    def _fitting_updates(self, job: Job, data: Trajectories) -> int:
        """How many updates fit into this network's share of the time left, to two digits."""
        timing = time_updates(job, data)
        # Networks come last.
        waiting = len(CANDIDATES) - len(self.rows)
        share = _PLANNED * self.left / waiting - timing.fixed
        updates = int(np.clip(share / max(timing.update, 1e-9), 0, _MOST_UPDATES))
        digits = 10 ** max(0, len(str(updates)) - 2)
        return updates // digits * digits


class _OutOfTime(BaseException):
    """Ends a candidate; no error that anybody else should handle."""


@contextlib.contextmanager
def _limited(seconds: float | None) -> Iterator[None]:
    """Raise `_OutOfTime` inside after this many seconds, where the system can: in the main thread of Unix."""
    in_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if seconds is None or not in_main or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise _OutOfTime

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _relative_noise(train: np.ndarray) -> float:
    """The size of what looks like white noise, relative to that of the data; 0 if there is hardly any."""
    u = np.asarray(train[:_LOOKED_AT], np.float64)
    points = u.shape[3:]
    noise = noise_level(np.asarray(to_modes(u, points)), Box(points, (1.0,) * len(points)))
    size = math.sqrt(np.mean(u**2) * u.shape[2])
    relative = float(np.sqrt(np.sum(noise**2)) / max(size, 1e-300))
    return relative if relative > _NOISY else 0.0


def summary(auto: Auto, record: Mapping[str, Any], warnings: int) -> str:
    """The choice, the error to expect, what the data look like, and what to try next, in words.

    **Arguments:**

    - `record`: that of the chosen job.
    - `warnings`: how many there were about the data.
    """
    task, best = record["job"]["task"], auto.best
    steps = min(HORIZON, len(record["mean_nrmse"]))
    grid = "x".join(map(str, task["points"]))
    noise = f"noise of about {percent(auto.noise)}" if auto.noise else "no noise to speak of"
    said = [
        f"Chosen: {auto.chosen}. Its forecasts of the validation part are off by {best.score:.2g} "
        f"(geometric mean over steps, persistence {auto.persistence.score:.2g}); on the test part, which "
        f"chose nothing, by {_number(record['gmean100'])} over {steps} steps.",
        f"The data: {task['num_train_samples']} training trajectories of {task['train_steps']} steps, "
        f"{task['channels']} channel(s) on {grid} points, {noise}.",
        *_advice(auto, warnings),
    ]
    return " ".join(said)


def _number(value: float | None) -> str:
    return "a number that is not finite" if value is None else f"{value:.2g}"


def _advice(auto: Auto, warnings: int) -> Iterator[str]:
    waiting = [row.model for row in auto.tried if row.outcome == "out of time"]
    if auto.stopped == "floor":
        yield "Nothing is left to gain: this is the rounding of float32."
    elif auto.stopped == "noise":
        yield "This is the noise of the data: only cleaner data would show a smaller error."
    elif auto.chosen == "persistence":
        yield (
            "Next: nothing forecasts better than no change at all. Give more trajectories, closer frames, or "
            "the quantities that are missing."
        )
    elif auto.best.updates:
        yield f"Next: train it for longer, by --model {auto.chosen} --updates {_MOST_UPDATES}."
    elif auto.best.score > 0.1:
        yield "Next: every model is poor here. Give more trajectories, closer frames, or missing quantities."
    if waiting:
        yield f"--minutes {math.ceil(3 * auto.minutes)} gives {' and '.join(waiting)} a chance."
    if warnings:
        yield "See to the warnings about the data first."
