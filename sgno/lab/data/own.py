"""A task made of the user's own trajectories, and the data of a task of either kind."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.files import content_id
from sgno.io.inputs import Conditions, Inputs, InputSpec, input_arrays
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
    """Trajectories of a user, and how they are divided. `content` is an id of what is in the files.

    A step may be conditioned on `history` frames and on known `inputs`, arrays beside the trajectories.
    """

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
    history: int = 1
    inputs: tuple[InputSpec, ...] = ()

    @property
    def grid(self) -> Grid:
        return Grid(self.channels, self.points)

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
        settings = dataclasses.asdict(self)
        # Left out where they say nothing, as before there were any: ids are made of this.
        for name in ("history", "inputs"):
            if getattr(self, name) == _DEFAULTS[name]:
                del settings[name]
        return {
            **settings,
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


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(OwnTask)}


@dataclasses.dataclass(frozen=True)
class OwnData:
    """A user's trajectories, opened: one source to divide, and a test part if it came apart.

    The sources have what a step is conditioned on as channels behind those of `grid`. `files`, `key` (the
    name of an array in them) and `layout` say how to open them again.
    """

    source: Source
    grid: Grid
    test: Source | None = None
    files: tuple[str, ...] = ()
    key: str | None = None
    layout: str | None = None
    history: int = 1
    inputs: tuple[InputSpec, ...] = ()

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


def open_data(
    data: Any,
    *,
    key: str | None = None,
    layout: str | None = None,
    history: int = 1,
    inputs: Mapping[str, Any] | Sequence[str] = (),
    holds: Collection[str] = (),
) -> OwnData:
    """A user's trajectories: an array, a source, or files, of which several are joined.

    Arrays `train` and `test` of a file are kept apart.

    **Arguments:**

    - `key`, `layout`: which array of a file, and the order of its axes.
    - `history`: how many frames a step is given.
    - `inputs`: known inputs: arrays by name, or the names of arrays in the files (`nu_train` and `nu_test` of
        parts that are apart).
    - `holds`: the inputs that keep their value from one frame to the next; others are linear in between.

    **Raises:** `InputError` if a file cannot be read or does not hold trajectories of the same grid.
    """
    if history < 1:
        raise InputError(f"--history {history} must be at least 1, the present frame.")
    files = [data] if isinstance(data, (str, Path)) else data
    in_files = isinstance(files, (list, tuple)) and bool(files) and isinstance(files[0], (str, Path))
    if not in_files:
        source = data if isinstance(data, Source) else array_source(data, layout=layout)
        if inputs and not isinstance(inputs, Mapping):
            raise InputError(
                f"There is no file to take {', '.join(inputs)} from. Give arrays: inputs={{...}}."
            )
        given = dict(inputs) if isinstance(inputs, Mapping) else {}
        known = Inputs.beside(source, given, holds=holds)
        opened = OwnData(source, source.grid, layout=layout)
        return _conditioned(opened, known, None, history)
    paths = [Path(file) for file in files]
    apart = key is None and all({"train", "test"} <= set(source_keys(path)) for path in paths)

    def join(part: str | None) -> tuple[Source, Inputs]:
        sources = [open_source(path, key=part, layout=layout) for path in paths]
        source = sources[0] if len(sources) == 1 else JoinedSource(sources)
        if isinstance(inputs, Mapping):
            return source, Inputs.beside(source, dict(inputs), holds=holds)
        each = [
            Inputs.beside(one, input_arrays(path, inputs, part), holds=holds)
            for path, one in zip(paths, sources, strict=True)
        ]
        return source, each[0] if len(each) == 1 else Inputs.join(each, [one.shape[0] for one in sources])

    source, known = join("train" if apart else key)
    test, test_known = join("test") if apart else (None, None)
    named = tuple(str(path.absolute()) for path in paths)
    return _conditioned(OwnData(source, source.grid, test, named, key, layout), known, test_known, history)


def _conditioned(data: OwnData, inputs: Inputs, test_inputs: Inputs | None, history: int) -> OwnData:
    """The data with inputs and earlier frames as channels, if there are any."""
    specs = inputs.specs()
    if history == 1 and not specs:
        return data
    test = None
    if data.test is not None and test_inputs is not None:
        test = Conditions(data.test, test_inputs, history, specs)
    source = Conditions(data.source, inputs, history, specs)
    return dataclasses.replace(data, source=source, test=test, history=history, inputs=specs)


def divide(data: OwnData, split: Split, *, streamed: bool | None = None) -> DividedData:
    """The task and the parts of a user's data. The size of the training part decides about streaming unless
    it is given."""
    parts = split(data.source, data.test)
    seen = survey(parts.train, data.grid.channels, data.history)
    streamed = parts.train.nbytes > RESIDENT_BYTES if streamed is None else streamed
    test = scored_part(parts.test) if streamed else parts.test
    task = OwnTask(
        name=data.name,
        content=data.content(),
        points=data.grid.points,
        channels=data.grid.channels,
        num_train_samples=parts.train.shape[0],
        train_steps=parts.train.shape[1] - 1,
        num_test_samples=test.shape[0],
        test_steps=test.shape[1] - 1,
        split=split,
        streamed=streamed,
        files=data.files,
        key=data.key,
        layout=data.layout,
        history=data.history,
        inputs=data.inputs,
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
    data = open_data(
        task.files,
        key=task.key,
        layout=task.layout,
        history=task.history,
        inputs=[spec.name for spec in task.inputs],
        holds=[spec.name for spec in task.inputs if spec.holds],
    )
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
