"""The shelf: a weights file and a card for each task and model, `FILES/TASK/MODEL.{safetensors,json}`."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from sgno.errors import InputError, unknown_name
from sgno.io.files import SUFFIX, read_json

FILES = Path(__file__).parent / "files"


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

    @property
    def score(self) -> str:
        """GMean100 for people."""
        return "non-finite" if self.gmean100 is None else f"{self.gmean100:.3g}"

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
    content = read_json(card_path(name))
    try:
        return Card(**content)
    except TypeError as error:
        raise InputError(f"The card {card_path(name)} is malformed ({error}). Reinstall sgno.") from error


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
