"""What the command line prints.

What was asked for goes to standard output, a list or with `--json` one line for programs; progress, what
became of a run, and errors go to standard error. Names and messages come from users' files, so texts are
printed as they are: never as markup, and without the characters that a terminal would obey.
"""

import functools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from sgno.errors import InputError, memory_message, storage_error
from sgno.progress import Stage

# Control characters but for tabs and ends of lines, those that turn the direction of a text, and bytes that
# are no text.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """A text whose control characters are shown as escapes."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class _Console(Console):
    def render_str(self, text: str, **options: Any) -> Text:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().render_str(visible(text), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


console = _Console(stderr=True, highlight=False, markup=False, emoji=False)
answers = _Console(highlight=False, markup=False, emoji=False)

# Text that wraps may be squeezed to this many characters before a column is dropped.
_LEAST_TEXT = 24
# A log hears of a long computation this often.
_QUIET_SECONDS = 30.0
# Output that goes to a file or a pipe has no width; nothing we list is wider than this.
_UNBOUNDED = 400


def say(text: str, *, style: str | None = None, to: Console = console) -> None:
    """One line, as it is: no markup, wrapped by the terminal alone."""
    to.print(text, style=style, soft_wrap=True)


def emit_json(content: Any) -> None:
    """The last line on standard output."""
    print(json.dumps(content, allow_nan=False), flush=True)


def shown(value: float | None, digits: int = 4) -> str:
    """A score for people."""
    return "non-finite" if value is None else f"{value:.{digits}g}"


def show_table(
    to: Console,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Sequence[str] = (),
    text: Sequence[str] = (),
    drop: Sequence[str] = (),
    caption: str | None = None,
) -> None:
    """A table that fits the terminal.

    **Arguments:**

    - `left`: columns aligned to the left, beside the first.
    - `text`: columns of prose, which wrap. All others are never cut.
    - `drop`: columns that a narrow terminal leaves out, the first one first.
    """
    from rich.cells import cell_len
    from rich.table import Table

    rows = [[visible(cell) for cell in row] for row in rows]
    natural = {h: max(map(cell_len, (h, *(row[i] for row in rows)))) for i, h in enumerate(headings)}
    least = {h: min(w, max(cell_len(h), _LEAST_TEXT)) if h in text else w for h, w in natural.items()}
    width = to.width if to.is_terminal or "COLUMNS" in os.environ else _UNBOUNDED
    kept, dropped = list(headings), []
    for heading in drop:
        if sum(least[h] + 3 for h in kept) + 1 > width:
            kept.remove(heading)
            dropped.append(heading)
    if dropped:
        caption = f"{caption or ''}\nNot shown in {width} columns: {', '.join(dropped)}".strip()
    table = Table(title=visible(title), caption=visible(caption) if caption else None, title_justify="left")
    table.caption_justify = "left"
    for heading in kept:
        aligned = "left" if heading == headings[0] or heading in (*left, *text) else "right"
        table.add_column(heading, justify=aligned, no_wrap=heading not in text)
    places = [headings.index(heading) for heading in kept]
    for row in rows:
        table.add_row(*(row[i] for i in places))
    # Set here, because a console would cut a table to its own width: what does not fit even so is not cut.
    needed, whole = (sum(widths[h] + 3 for h in kept) + 1 for widths in (least, natural))
    table.width = min(max(width, needed), whole)
    to.print(table, crop=False)


@contextmanager
def progress_bar(description: str, total: int, *, training: bool = False) -> Iterator[Callable[..., None]]:
    """Yields a callback that takes how much is done, or with `training` a `Progress` of training; and any
    `Stage` on the way there.

    Where standard error is not a terminal, a line says what begins, and one now and then how far it is.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = functools.partial(TextColumn, markup=False)
    more = (text("loss {task.fields[loss]}"), text("{task.fields[speed]}/s")) if training else ()
    columns = (text("{task.description}"), BarColumn(), MofNCompleteColumn(), *more)
    quiet = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=quiet) as bar:
        description = visible(description)
        task = bar.add_task(description, total=total, loss="-", speed="-")
        heard: set[str] = set()
        began = said = time.monotonic()

        def now_and_then(done: int, per_second: float) -> None:
            nonlocal said
            if quiet and time.monotonic() - said > _QUIET_SECONDS:
                said = time.monotonic()
                left = f", {(total - done) / per_second:.0f} s left" if per_second else ""
                say(f"{description}: {done} of {total}{left}")

        def advance(done: Any) -> None:
            if isinstance(done, Stage):
                if quiet and done.what not in heard:
                    say(f"{description}: {done.what} ...")
                heard.add(done.what)
                doing = f"{description}: {done.what}"
                bar.update(task, description=doing, completed=done.done, total=done.total or None)
            elif not training:
                bar.update(task, completed=done)
                now_and_then(done, done / max(time.monotonic() - began, 1e-9))
            else:
                speed = f"{done.updates_per_second:.3g}" if done.updates_per_second else "-"
                bar.update(task, description=description, completed=done.update, total=total)
                bar.update(task, loss=f"{done.loss:.3e}", speed=speed)
                now_and_then(done.update, done.updates_per_second)

        yield advance


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn bad input into one clear line and exit code 2, and an interrupt into exit code 130.

    A full disk and too little memory are told the same way. Any other error is a bug of ours and keeps its
    traceback; `SGNO_DEBUG=1` shows that of bad input too.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            # The terminal may be what has gone.
            with suppress(OSError):
                console.print("Interrupted. Run the same command again to go on from here.")
            sys.exit(130)
        except BrokenPipeError:
            raise
        except Exception as error:
            message = _message(error)
            if message is None or os.environ.get("SGNO_DEBUG"):
                raise
            console.print(Text.assemble(("Error:", "red"), f" {visible(message)}"), soft_wrap=True)
            sys.exit(2)

    return run


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let TERM and HUP end the program as Ctrl-C does, and a closed pipe end it without a word."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # What `nohup` ignores stays ignored.
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
        sys.exit(141)


def _message(error: Exception) -> str | None:
    """One line for an error that is the user's to deal with; None for one that is ours."""
    if isinstance(error, OSError):
        error = storage_error(error, error.filename or "to the disk") or error
    if isinstance(error, InputError):
        return " ".join(str(error).split())
    return memory_message(error)
