"""A task made of the user's own trajectories, and the data of a task of either kind."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sgno.errors import InputError
from sgno.io.files import content_id
from sgno.io.plain import decode
from sgno.io.source import JoinedSource, Source, array_source, open_source, source_keys
from sgno.io.split import Split, SplitParts, scored_part
from sgno.io.survey import Survey, survey
from sgno.lab.data.trajectories import Trajectories, data_id, load_trajectories
from sgno.lab.tasks import Task

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
class OwnData:
    """A user's trajectories, opened: one source to divide, and a test part if it came apart.

    `files`, `key` (the name of an array in them) and `layout` say how to open them again.
    """

    source: Source
    test: Source | None = None
    files: tuple[str, ...] = ()
    key: str | None = None
    layout: str | None = None

    @property
    def name(self) -> str:
        if not self.files:
            return "array"
        return Path(self.files[0]).name + (f" and {len(self.files) - 1} more" if len(self.files) > 1 else "")

    def content(self) -> str:
        """An id of what the sources hold."""
        return content_id([self.source.id(), None if self.test is None else self.test.id()])


class DividedData(NamedTuple):
    """A user's data, split and surveyed once."""

    task: OwnTask
    parts: SplitParts
    survey: Survey

    def load(self) -> Trajectories:
        """The parts as arrays; a streamed training part stays where it is."""
        streamed, (train, validation, test) = self.task.streamed, self.parts
        scored = lambda part: (scored_part(part) if streamed else part).read()
        return Trajectories(
            id=content_id(self.task.data_settings()),
            train=train if streamed else train.read(),
            test=scored(test),
            validation=None if validation is None else scored(validation),
            moments=self.survey.moments,
        )


def open_data(data: Any, *, key: str | None = None, layout: str | None = None) -> OwnData:
    """A user's trajectories: an array, a source, or files, of which several are joined.

    Arrays `train` and `test` of a file are kept apart.

    **Raises:** `InputError` if a file cannot be read or does not hold trajectories of the same grid.
    """
    if isinstance(data, Source):
        return OwnData(data)
    files = [data] if isinstance(data, (str, Path)) else data
    if not isinstance(files, (list, tuple)) or not files or not isinstance(files[0], (str, Path)):
        return OwnData(array_source(data, layout=layout), layout=layout)
    apart = key is None and all({"train", "test"} <= set(source_keys(file)) for file in files)

    def join(name: str | None) -> Source:
        sources = [open_source(file, key=name, layout=layout) for file in files]
        return sources[0] if len(sources) == 1 else JoinedSource(sources)

    source, test = (join("train"), join("test")) if apart else (join(key), None)
    return OwnData(source, test, tuple(str(Path(file).absolute()) for file in files), key, layout)


def divide(data: OwnData, split: Split, *, streamed: bool | None = None) -> DividedData:
    """The task and the parts of a user's data. The size of the training part decides about streaming unless
    it is given."""
    parts = split(data.source, data.test)
    seen = survey(parts.train)
    streamed = parts.train.nbytes > RESIDENT_BYTES if streamed is None else streamed
    test = scored_part(parts.test) if streamed else parts.test
    task = OwnTask(
        name=data.name,
        content=data.content(),
        points=parts.train.grid.points,
        channels=parts.train.grid.channels,
        num_train_samples=parts.train.shape[0],
        train_steps=parts.train.shape[1] - 1,
        num_test_samples=test.shape[0],
        test_steps=test.shape[1] - 1,
        split=split,
        streamed=streamed,
        files=data.files,
        key=data.key,
        layout=data.layout,
    )
    return DividedData(task, parts, seen)


@functools.singledispatch
def load_data(task: Task, cache: Path | None = None) -> Trajectories:
    """The data of a task: made by APEBench and cached, or read from the files that it names."""
    return load_trajectories(task, cache)


@load_data.register
def _(task: OwnTask, cache: Path | None = None) -> Trajectories:
    """**Raises:** `InputError` if the files have changed since the task was described."""
    del cache
    data = open_data(task.files, key=task.key, layout=task.layout)
    divided = divide(data, task.split, streamed=task.streamed)
    if divided.task.content != task.content:
        raise InputError(
            f"{', '.join(task.files)} changed since this run was started. Run `sgno fit` on it again."
        )
    return divided.load()


def id_of_data(task: Task | OwnTask) -> str:
    """An id of a task's data, without loading them."""
    return content_id(task.data_settings()) if isinstance(task, OwnTask) else data_id(task)


def task_from_json(content: Mapping[str, Any]) -> Task | OwnTask:
    """The task that `to_json` wrote, of either kind."""
    return OwnTask.from_json(content) if "content" in content else Task.from_json(content)
