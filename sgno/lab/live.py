"""What is done, running, left and failed, and when a study will end."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.styled import Styled
from rich.table import Table

from sgno.lab.executor import News
from sgno.lab.job import Job

_SHOWN_FAILURES = 5


def label(job: Job) -> str:
    return f"{job.task.name} {job.model_name} seed {job.seed}"


def duration(seconds: float) -> str:
    """Seconds as a person would say them: `45 s`, `12 min`, `3 h 20 min`, `4 d 2 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


class Board:
    """Keeps count of a study's jobs.

    **Arguments:**

    - `jobs`: all of the study.
    - `weights`: expected seconds by job id; a job without one counts as the mean of the others.
    """

    def __init__(self, jobs: Sequence[Job], weights: Mapping[str, float] | None = None):
        weights = weights or {}
        mean = sum(weights.values()) / len(weights) if weights and sum(weights.values()) > 0 else 1.0
        self._weights = {job.id: weights.get(job.id) or mean for job in jobs}
        self._settled: set[str] = set()
        self._found: set[str] = set()
        self.running: dict[str, tuple[Job, dict[str, Any]]] = {}
        self.failures: dict[str, tuple[Job, str]] = {}
        self._started = time.monotonic()

    @property
    def total(self) -> int:
        return len(self._weights)

    @property
    def done(self) -> int:
        return len(self._settled) - len(self.failures)

    @property
    def left(self) -> int:
        return self.total - len(self._settled) - len(self.running)

    def hear(self, news: News) -> None:
        job_id = news.job.id
        if news.kind in ("started", "progress"):
            self.running[job_id] = (news.job, news.content)
            return
        self.running.pop(job_id, None)
        if news.kind in ("finished", "failed"):
            self._settled.add(job_id)
        if news.content.get("found"):
            self._found.add(job_id)
        if news.kind == "failed":
            self.failures[job_id] = (news.job, news.content["error"])

    def seconds_left(self) -> float | None:
        """From the pace so far, weighted by what jobs were expected to cost; None before there is a pace."""
        mine = sum(w for i, w in self._weights.items() if i in self._settled and i not in self._found)
        for job_id, (_, content) in self.running.items():
            mine += self._weights[job_id] * content.get("update", 0) / max(1, content.get("updates", 1))
        left = sum(w for i, w in self._weights.items() if i not in self._found) - mine
        return (time.monotonic() - self._started) * left / mine if mine > 0 else None


class Watcher:
    """Shows a study: a table that redraws itself on a terminal, otherwise one line per job that ends."""

    def __init__(self, board: Board, console: Console):
        self._board, self._console = board, console
        self._live = Live(console=console, refresh_per_second=2, get_renderable=self._table, transient=True)

    def __enter__(self) -> "Watcher":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, news: News) -> None:
        self._board.hear(news)
        if news.kind in ("started", "progress", "busy") or news.content.get("found"):
            return
        board, name = self._board, label(news.job)
        if news.kind == "lost":
            line, style = f"{name}: {news.content['error']} Trying again.", "yellow"
        elif news.kind == "failed":
            line, style = f"{name} failed: {news.content['error']}", "red"
        else:
            score = news.content["gmean100"]
            shown = "non-finite" if score is None else f"{score:.4g}"
            line, style = f"{name}: GMean100 {shown} in {duration(news.content['seconds'])}", None
        counted = f"[{board.done + len(board.failures)}/{board.total}]"
        self._console.print(f"{counted} {line}{self._end()}", style=style, markup=False, soft_wrap=True)

    def _end(self) -> str:
        seconds = self._board.seconds_left()
        return "" if not seconds else f", about {duration(seconds)} left"

    def _table(self) -> Group:
        board = self._board
        running = Table(expand=False)
        for heading, side in (
            ("running", "left"),
            ("update", "right"),
            ("updates/s", "right"),
            ("loss", "right"),
        ):
            running.add_column(heading, justify="left" if side == "left" else "right")
        for job, content in list(board.running.values()):
            loss, speed = content.get("loss"), content.get("updates_per_second")
            running.add_row(
                label(job),
                f"{content['update']:,} / {content['updates']:,}" if "update" in content else "preparing",
                f"{speed:.3g}" if speed else "-",
                f"{loss:.3e}" if loss is not None else "-",
            )
        seconds = board.seconds_left()
        when = "" if seconds is None else f" - ends in about {duration(seconds)} ({_clock(seconds)})"
        running_now, failed = len(board.running), len(board.failures)
        counts = f"done {board.done}, running {running_now}, left {board.left}, failed {failed}"
        failures = [
            Styled(f"{label(job)}: {error[:100]}", "red")
            for job, error in list(board.failures.values())[-_SHOWN_FAILURES:]
        ]
        return Group(running, f"{counts}{when}", *failures)


def _clock(seconds: float) -> str:
    return time.strftime("%a %H:%M", time.localtime(time.time() + seconds))
