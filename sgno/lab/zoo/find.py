"""A trained step by the name of a shipped one, by its file, or by the folder of a run."""

import difflib
from os import PathLike
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.lab.store import WEIGHTS
from sgno.lab.zoo.shelf import names, verified

_STEM = Path(WEIGHTS).stem


def load(path_or_name: str | PathLike[str], *, like: Any = None) -> Any:
    """A trained step, ready to call: `u_next = step(u)` with `u` of shape `(channels, *points)`.

    **Arguments:**

    - `path_or_name`: a weights file, the folder of a run, or a name of `sgno zoo` such as `ks1d/sgno-x`.
    - `like`: a module of the same structure, for a step that has no config of a registered kind.

    **Returns:**

    The step, an Equinox module, with its `config` and `grid` if its kind is registered. For many steps use
    `sgno.rollout`, or `prepare(step)` once and call that.

    **Raises:** `InputError` if there is no such file or name, if the file is damaged or of another model, or
    if its weights are not finite.
    """
    from sgno import weights

    return weights.load(find(path_or_name), like=like)


def find(path_or_name: str | PathLike[str]) -> Path:
    """The weights file that a path or a name means. A file of the zoo is checked against its card."""
    if isinstance(path_or_name, str) and path_or_name in names():
        return verified(path_or_name)
    path = Path(path_or_name)
    if path.is_file():
        return path
    if path.is_dir():
        return _in_folder(path)
    raise _nothing(str(path_or_name))


def _in_folder(folder: Path) -> Path:
    """The weights of a run's folder, or of a results folder that holds one run."""
    for pattern in (f"{_STEM}.*", f"jobs/[!.]*/{_STEM}.*", f"[!.]*/{_STEM}.*"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(str(file.parent) for file in found[:3])
            raise InputError(
                f"The folder {folder} holds {len(found)} runs. Give one of them, for example {shown}."
            )
    raise InputError(
        f"The folder {folder} holds no {WEIGHTS}. Give the folder of a finished run or a weights file."
    )


def _nothing(asked: str) -> InputError:
    known = names()
    near = difflib.get_close_matches(asked, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return InputError(
        f"'{asked}' is neither a file, nor a folder, nor a model of the zoo.{hint} Known: {', '.join(known)}."
    )
