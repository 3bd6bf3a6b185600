"""What the command line prints.

What was asked for goes to standard output, a list or with `--json` one line for programs; progress, what
became of a run, and errors go to standard error.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from sgno.errors import InputError, memory_message, storage_error

console = Console(stderr=True, highlight=False)
answers = Console(highlight=False)


def emit_json(content: Any) -> None:
    """The last line on standard output."""
    print(json.dumps(content, allow_nan=False), flush=True)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn bad input into one clear line and exit code 2, and Ctrl-C into exit code 130.

    `SGNO_DEBUG=1` shows the traceback instead.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            console.print("Interrupted. Run the same command again to go on from here.")
            sys.exit(130)
        except BrokenPipeError:
            sys.stderr.close()
            sys.exit(141)
        except Exception as error:
            message = _message(error)
            if message is None or os.environ.get("SGNO_DEBUG"):
                raise
            console.print(f"[red]Error:[/red] {_escaped(message)}", soft_wrap=True)
            sys.exit(2)

    return run


def _message(error: Exception) -> str | None:
    """One line for an error that is the user's to deal with; None for one that is ours."""
    if out_of_memory := memory_message(error):
        return out_of_memory
    if isinstance(error, OSError):
        error = storage_error(error, error.filename or "to the disk") or error
    if not isinstance(error, (ValueError, OSError)):
        return None
    return " ".join(str(error).split()) or type(error).__name__


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """`["width=8", ...]` as a dictionary."""
    settings = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise InputError(f"'{pair}' is not NAME=VALUE, for example --set width=8.")
        settings[name.strip()] = text.strip()
    return settings
