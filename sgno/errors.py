"""Errors that are the user's to fix: one line saying what came, what was expected, what to do."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input. The command line prints its message and exits with code 2."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not known: suggests the nearest and lists the known ones."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return InputError(f"Unknown {what} '{name}'.{hint} Known: {', '.join(known)}.")
