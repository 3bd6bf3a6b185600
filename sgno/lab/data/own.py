"""A task made of the user's own trajectories: described by plain data, loaded whole or left on disk."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.io.files import content_id
from sgno.io.plain import decode
from sgno.io.source import JoinedSource, Source, open_source, source_keys
from sgno.io.split import Split, SplitParts, scored_part
from sgno.io.survey import survey
from sgno.lab.data.trajectories import Trajectories

# Training parts up to this size are held in memory; larger ones are streamed.
RESIDENT_BYTES = 512 * 2**20


@dataclasses.dataclass(frozen=True)
class OwnTask:
    """Trajectories of a user, and how they are divided. `content` is an id of what is in the files."""

    name: str
    content: str
    points: tuple[int, ...]
    channels: int
    num_train_samples: int
    train_steps: int
    num_test_samples: int
    test_steps: int
    split: Split
    streamed: bool
    files: tuple[str, ...] = ()
    key: str | None = None
    layout: str | None = None

    @property
    def scenario(self) -> str:
        return "own data"

    @property
    def num_spatial_dims(self) -> int:
        return len(self.points)

    @property
    def num_points(self) -> int:
        return self.points[0]

    def data_settings(self) -> dict[str, Any]:
        """All that decides the data: content and division, not where the files are."""
        settings = self.to_json()
        for name in ("name", "files", "key", "layout"):
            del settings[name]
        return settings

    def to_json(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "scenario": self.scenario,
            "num_spatial_dims": self.num_spatial_dims,
            "num_points": self.num_points,
            "points": list(self.points),
            "files": list(self.files),
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "OwnTask":
        derived = ("scenario", "num_spatial_dims", "num_points")
        fields = {name: value for name, value in content.items() if name not in derived}
        decoders = {Split: lambda part: decode(Split, part, "a split")}
        return decode(OwnTask, fields, "a task of own data", decoders)


@dataclasses.dataclass(frozen=True)
class OwnSources:
    """Where a user's trajectories are: one source that is divided, and a test part if it is given apart."""

    source: Source
    test: Source | None = None

    def content(self) -> str:
        return content_id([self.source.id(), None if self.test is None else self.test.id()])


def open_files(
    files: Sequence[Path | str], *, key: str | None = None, layout: str | None = None
) -> OwnSources:
    """The trajectories of files; several are joined. Arrays `train` and `test` are kept apart.

    **Raises:** `InputError` if a file cannot be read or does not hold trajectories of the same grid.
    """
    apart = key is None and all({"train", "test"} <= set(source_keys(file)) for file in files)

    def join(name: str | None) -> Source:
        sources = [open_source(file, key=name, layout=layout) for file in files]
        return sources[0] if len(sources) == 1 else JoinedSource(sources)

    return OwnSources(join("train"), join("test")) if apart else OwnSources(join(key))


def describe(
    sources: OwnSources,
    name: str,
    split: Split,
    *,
    streamed: bool | None = None,
    files: Sequence[Path | str] = (),
    key: str | None = None,
    layout: str | None = None,
) -> OwnTask:
    """The task of some sources. `streamed` is decided by the size of the training part unless given."""
    parts = split(sources.source, sources.test)
    streamed = parts.train.nbytes > RESIDENT_BYTES if streamed is None else streamed
    test = scored_part(parts.test) if streamed else parts.test
    return OwnTask(
        name=name,
        content=sources.content(),
        points=parts.train.grid.points,
        channels=parts.train.grid.channels,
        num_train_samples=parts.train.shape[0],
        train_steps=parts.train.shape[1] - 1,
        num_test_samples=test.shape[0],
        test_steps=test.shape[1] - 1,
        split=split,
        streamed=streamed,
        files=tuple(str(Path(file).absolute()) for file in files),
        key=key,
        layout=layout,
    )


def load_own(task: OwnTask, sources: OwnSources | None = None) -> Trajectories:
    """The parts of a user's trajectories; a streamed training part stays where it is.

    **Raises:** `InputError` if the files have changed since the task was described.
    """
    if sources is None:
        sources = open_files(task.files, key=task.key, layout=task.layout)
        if sources.content() != task.content:
            raise InputError(
                f"{', '.join(task.files)} changed since this run was started. Run `sgno fit` on it again."
            )
    scored = lambda part: (scored_part(part) if task.streamed else part).read()
    parts: SplitParts = task.split(sources.source, sources.test)
    return Trajectories(
        id=content_id(task.data_settings()),
        train=parts.train if task.streamed else parts.train.read(),
        test=scored(parts.test),
        validation=None if parts.validation is None else scored(parts.validation),
        moments=survey(parts.train).moments,
    )
