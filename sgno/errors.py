"""Errors that are the user's to fix: one line saying what came, what was expected, what to do."""

import difflib
import errno
import importlib
import importlib.metadata
from collections.abc import Iterable
from typing import Any

_ADVICE = {
    errno.ENOSPC: "Free some space there",
    errno.EDQUOT: "Free some of your quota",
    errno.EFBIG: "Raise the limit on the size of files",
    errno.EROFS: "Choose a place with write access",
    errno.EIO: "Check that disk",
}
# An allocation that fails while a program runs is reported as INTERNAL, others by their own code.
_XLA_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory allocating")
LESS_MEMORY = "use a smaller model, batch or grid, fewer workers at once, or a machine with more"


class InputError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""


class StorageError(InputError):
    """A disk that takes no more: full, over its quota, read-only. Every further job would meet it too."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not known: suggests the nearest and lists the known ones."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return InputError(f"Unknown {what} '{name}'.{hint} Known: {', '.join(known)}.")


def require(package: str, extra: str, what: str) -> Any:
    """Import an optional package.

    **Arguments:**

    - `package`: the module to import.
    - `extra`: the extra of sgno that installs it.
    - `what`: what needs it, as the beginning of the message.

    **Raises:** `InputError` naming the extra if the package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        name = package.partition(".")[0]
        # A package that is there but lacks something of its own is not helped by the extra.
        if error.name != name:
            raise
        raise InputError(f"{what} needs {name}. Install it with: pip install 'sgno[{extra}]'") from error


def installed_version(package: str) -> str:
    """The version of a package, or that it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def storage_error(error: OSError, place: object) -> StorageError | None:
    """What a refused write means and what to do about it; None for any other error of the system."""
    if error.errno not in _ADVICE:
        return None
    return StorageError(
        f"Cannot write {place}: {error.strerror}. {_ADVICE[error.errno]} and run the same command again: "
        "what is finished is kept."
    )


def memory_message(error: BaseException) -> str | None:
    """What to do if an error, of Python or of XLA, says that memory ran out; None for any other error."""
    said = " ".join(str(error).split())
    if not isinstance(error, MemoryError) and not any(sign in said for sign in _XLA_OUT_OF_MEMORY):
        return None
    return f"Out of memory{f' ({said})' if said else ''}: {LESS_MEMORY}."
