"""A trained step by the name of a shipped one, by its file, or by the folder of a run."""

import difflib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from sgno.errors import InputError
from sgno.lab.zoo.shelf import names, verified

if TYPE_CHECKING:
    from sgno.step import Step

WEIGHTS = "weights.sgno"


def load(path_or_name: str | PathLike[str]) -> "Step":
    """A trained step, ready to call: `u_next = step(u)` with `u` of shape `(channels, *points)`.

    **Arguments:**

    - `path_or_name`: a weights file, the folder of a run, or a name of `sgno zoo` such as `ks1d/sgno-x`.

    **Returns:**

    The step, an Equinox module. For many steps use `sgno.rollout`, or `prepare(step)` once and call that.

    **Raises:** `InputError` if there is no such file or name, or if the file is damaged.
    """
    from sgno.weights import load_weights

    return load_weights(find(path_or_name)).step


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
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS
    runs = sorted(folder.glob(f"jobs/[!.]*/{WEIGHTS}")) + sorted(folder.glob(f"[!.]*/{WEIGHTS}"))
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise InputError(
            f"The folder {folder} holds no {WEIGHTS}. Give the folder of a finished run or a weights file."
        )
    shown = ", ".join(str(run.parent) for run in runs[:3])
    raise InputError(f"The folder {folder} holds {len(runs)} runs. Give one of them, for example {shown}.")


def _nothing(asked: str) -> InputError:
    known = names()
    near = difflib.get_close_matches(asked, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return InputError(
        f"'{asked}' is neither a file, nor a folder, nor a model of the zoo.{hint} Known: {', '.join(known)}."
    )
