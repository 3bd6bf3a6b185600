"""Where the numbers of a run go while it runs, behind one small protocol.

JSON lines are always written. TensorBoard and Weights & Biases (offline) are extras (`sgno[tracking]`),
imported only when asked for.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sgno.errors import require, unknown_name
from sgno.io.commit import explained, make_folder, write_bytes
from sgno.io.files import finite
from sgno.training import Progress

METRICS = "metrics.jsonl"


class Tracker(Protocol):
    """Hears the numbers of a run. Write one of your own with these two methods."""

    def log(self, update: int, values: Mapping[str, float | None]) -> None:
        """Numbers that hold after this update; None stands for one that is not finite."""
        ...

    def close(self) -> None:
        """The run has ended, or was interrupted."""
        ...


class JsonLines:
    """One JSON object a line: `{"update": 120, "loss": 0.0031, "updates_per_second": 96.1}`."""

    def __init__(self, path: Path, *, after: int = 0):
        """A run that goes on after `after` updates keeps its lines up to there and drops later ones, which it
        is about to write again."""
        make_folder(path.parent)
        kept = [line for line in _lines(path) if _update(line) <= after] if after else []
        write_bytes(path, [f"{line}\n".encode() for line in kept])
        self._path, self._file = path, path.open("a")

    def log(self, update: int, values: Mapping[str, float | None]) -> None:
        with explained(self._path):
            self._file.write(json.dumps({"update": update, **values}, allow_nan=False) + "\n")
            # A line is worth reading while the run goes on.
            self._file.flush()

    def close(self) -> None:
        # What a full disk did not take is tried once more here.
        with explained(self._path):
            self._file.close()


class TensorBoard:
    """Scalars for `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]):
        tensorboard = require("tensorboardX", "tracking", "--track tensorboard")
        writer = tensorboard.SummaryWriter(str(make_folder(folder)))
        writer.add_text("settings", f"```\n{json.dumps(dict(settings), indent=1)}\n```")
        self._writer = writer

    def log(self, update: int, values: Mapping[str, float | None]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, math.nan if value is None else value, update)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync` sends it."""

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]):
        wandb = require("wandb", "tracking", "--track wandb")
        self._run = wandb.init(
            project="sgno",
            name=name,
            dir=str(make_folder(folder)),
            config=dict(settings),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(silent=True),
        )

    def log(self, update: int, values: Mapping[str, float | None]) -> None:
        self._run.log({k: math.nan if v is None else v for k, v in values.items()}, step=update)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def parse_trackers(text: str | None) -> list[str]:
    """The names in a text such as `tensorboard,wandb`, checked, and their packages with them.

    **Raises:** `InputError` for an unknown name, or naming what to install.
    """
    names = [name.strip().lower() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        require({"tensorboard": "tensorboardX", "wandb": "wandb"}[name], "tracking", f"--track {name}")
    return list(dict.fromkeys(names))


@contextlib.contextmanager
def tracking(
    names: list[str], folder: Path, name: str, settings: Mapping[str, Any]
) -> Iterator[list[Tracker]]:
    """The trackers of one run, closed at the end of the block whatever happens in it.

    **Arguments:**

    - `names`: of `TRACKERS`.
    - `folder`: for their files.
    - `name`, `settings`: what the run is called and made of.
    """
    with contextlib.ExitStack() as stack:
        trackers = []
        for chosen in names:
            trackers.append(TRACKERS[chosen](folder, name, settings))
            stack.callback(trackers[-1].close)
        yield trackers


def numbers_of(progress: Progress) -> dict[str, float | None]:
    """What a tracker hears of a training's progress."""
    return {"loss": finite(progress.loss), "updates_per_second": finite(progress.updates_per_second)}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def _update(line: str) -> float:
    """The update of a line; a line that was cut off belongs to none."""
    try:
        return float(json.loads(line)["update"])
    except (ValueError, KeyError, TypeError):
        return math.inf
