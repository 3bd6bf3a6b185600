"""The shelf: a weights file and a card for each task and model, `FILES/TASK/MODEL.{safetensors,json}`.

`load` takes a step from it by name, or from any file or folder of a run.
"""

import dataclasses
import difflib
import hashlib
import logging
from os import PathLike
from pathlib import Path
from typing import Any

from sgno.errors import InputError, unknown_name
from sgno.io.files import SUFFIX, read_json, read_sealed
from sgno.io.plain import decode
from sgno.lab.store import WEIGHTS, Store

FILES = Path(__file__).parent / "files"
_STEM = Path(WEIGHTS).stem
_HALF, _NO_BETTER = 0.5, 0.9
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Card:
    """What is known of a shipped step: its data, settings, score, and the checksum of its file.

    `task`, `model` and `train` are complete settings; `gmean100` is the score of this very file, `seed` the
    one of `seeds` whose score is the median of `gmean100_per_seed`.
    """

    name: str
    task: dict[str, Any]
    model: dict[str, Any]
    train: dict[str, Any]
    seed: int
    seeds: list[int]
    gmean100: float | None
    gmean100_per_seed: list[float | None]
    stable_step: int
    params: int
    params_real: int
    job: str
    data: str
    versions: dict[str, str]
    finished: str
    bytes: int
    sha256: str
    persistence: float | None = None
    """What the forecast that nothing changes scores on the same data."""

    @property
    def score(self) -> str:
        """GMean100 for people."""
        return "non-finite" if self.gmean100 is None else f"{self.gmean100:.3g}"

    @property
    def warning(self) -> str | None:
        """One line if the step fails its own task: off by half, or no better than persistence."""
        score = float("inf") if self.gmean100 is None else self.gmean100
        still = float("inf") if self.persistence is None else self.persistence
        if score <= _HALF and score < _NO_BETTER * still:
            return None
        beside = "" if self.persistence is None else f" (persistence {self.persistence:.3g})"
        return (
            f"{self.name} fails its own task: GMean100 {self.score}{beside} after {self.train['updates']:,} "
            "updates. It is here to compare with; for a forecast take another model."
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def weights_path(name: str) -> Path:
    return FILES / f"{name}{SUFFIX}"


def card_path(name: str) -> Path:
    return FILES / f"{name}.json"


def names() -> list[str]:
    """Every step on the shelf, as `TASK/MODEL`."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in FILES.glob("*/*.json"))


def card(name: str) -> Card:
    """The card of a step.

    **Raises:** `InputError` for an unknown name, listing the known ones, and for a card that was changed.
    """
    known = names()
    if name not in known:
        raise unknown_name("model of the zoo", name, known)
    try:
        return decode(Card, read_json(card_path(name)), f"the card of {name}")
    except InputError as error:
        raise InputError(f"The card {card_path(name)} is malformed: {error} Reinstall sgno.") from error


def cards() -> list[Card]:
    return [card(name) for name in names()]


def verified(name: str) -> Path:
    """The weights file of a step, after its bytes were checked against the card.

    **Raises:** `InputError` if the file is missing or is not the one that the card describes.
    """
    said, path = card(name), weights_path(name)
    if not path.is_file():
        raise InputError(f"The weights of {name} are missing from this installation. Reinstall sgno.")
    found = sha256(path)
    if found != said.sha256:
        raise InputError(
            f"{path} is not the file that its card describes: its SHA-256 begins with {found[:12]}, "
            f"the card says {said.sha256[:12]}. It was damaged or changed; reinstall sgno."
        )
    return path


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
        if warning := card(path_or_name).warning:
            _log.warning("%s", warning)
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
        if found and (chosen := _chosen(folder)) in found:
            return chosen
        if found:
            shown = ", ".join(str(file.parent) for file in found[:3])
            raise InputError(
                f"The folder {folder} holds {len(found)} runs. Give one of them, for example {shown}."
            )
    raise InputError(
        f"The folder {folder} holds no {WEIGHTS}. Give the folder of a finished run or a weights file."
    )


def _chosen(folder: Path) -> Path | None:
    """The weights that `sgno fit` chose in a results folder, if it searched for the best model once."""
    store = Store(folder)
    searches = [read_sealed(path) for path in folder.glob("auto/*.json")]
    jobs = {search["job"] for search in searches if "job" in search}
    return store.weights(jobs.pop()) if len(jobs) == 1 else None


def _nothing(name: str) -> InputError:
    known = names()
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return InputError(
        f"'{name}' is neither a file, nor a folder, nor a model of the zoo.{hint} Known: {', '.join(known)}."
    )
