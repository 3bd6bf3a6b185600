"""A progress bar with loss, updates per second and time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sgno.cli.console import console


@contextmanager
def training_bar(description: str, total: int) -> Iterator:
    """Yields a callback for `sgno.training.train`; prints nothing where standard error is not a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TextColumn("{task.fields[speed]}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total, loss="-", speed="-")

        def advance(progress) -> None:
            speed = f"{progress.updates_per_second:.3g}" if progress.updates_per_second else "-"
            bar.update(task, completed=progress.update, loss=f"{progress.loss:.3e}", speed=speed)

        yield advance


@contextmanager
def bar(description: str, total: int) -> Iterator:
    """Yields a callback that takes how much is done; prints nothing where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(description, total=total)
        yield lambda done: shown.update(task, completed=done)
