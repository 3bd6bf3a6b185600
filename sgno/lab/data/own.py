"""A task made of the user's own trajectories, and the data of a task of either kind."""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.files import content_id
from sgno.io.inputs import Conditions, Inputs, InputSpec, input_arrays, time_steps
from sgno.io.plain import decode
from sgno.io.source import JoinedSource, Source, array_source, open_source, source_keys
from sgno.io.split import Split, SplitParts, scored_part
from sgno.io.survey import Survey, survey
from sgno.io.walls import Walls, find_walls, grid_between
from sgno.lab.data.trajectories import Trajectories, data_id, load_trajectories
from sgno.lab.tasks import Task

# Training parts up to this size are held in memory; larger ones are streamed.
RESIDENT_BYTES = 512 * 2**20


@dataclasses.dataclass(frozen=True)
class OwnTask:
    """Trajectories of a user, and how they are divided. `content` is an id of what is in the files.

    A step may be conditioned on `history` frames and on known `inputs`, arrays beside the trajectories. `dt`
    is the time between frames (or the name of the array that has it) and `length` that of each side, where
    they were told.
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
    walls: Walls | None = None
    dt: float | str | None = None
    length: tuple[float, ...] | None = None

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
        for name in ("history", "inputs", "walls", "dt", "length"):
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
    walls: Walls | None = None
    dt: float | str | None = None
    length: tuple[float, ...] | None = None

    @property
    def learned_grid(self) -> Grid:
        """The grid of the states that a model learns."""
        return self.source.grid if self.walls is None else grid_between(self.walls, self.source.grid)

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

    @property
    def learned_grid(self) -> Grid:
        """The grid of the states that a model learns."""
        wide = self.parts.train.grid
        return wide if self.task.walls is None else grid_between(self.task.walls, wide)

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
    boundary: str | Walls | None = None,
    nodes: str | None = None,
    dt: float | str | np.ndarray | None = None,
    length: float | Sequence[float] | None = None,
) -> OwnData:
    """A user's trajectories: an array, a source, or files, of which several are joined.

    Arrays `train` and `test` of a file are kept apart.

    **Arguments:**

    - `key`, `layout`: which array of a file, and the order of its axes.
    - `history`: how many frames a step is given.
    - `inputs`: known inputs: arrays by name, or the names of arrays in the files (`nu_train` and `nu_test` of
        parts that are apart).
    - `holds`: the inputs that keep their value from one frame to the next; others are linear in between.
    - `boundary`, `nodes`: the conditions at the walls, see `sgno.io.walls.parse_boundary`, and whether the
        outermost points are `walls` or the centres of `cells`; by default the data say which.
    - `dt`: the time between frames: a number, or `(samples,)` or `(samples, frames - 1)` as an array or by
        its name in the files. Times that differ are given to the model as the known input `dt`.
    - `length`: of the box, one number or one for each side.

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
        if isinstance(dt, str):
            raise InputError(f"There is no file to take '{dt}' from. Give dt as a number or an array.")
        steps = None if dt is None else time_steps(dt, *source.shape[:2])
        number, dims = _one_number(steps), source.grid.num_spatial_dims
        known = Inputs.beside(source, given, holds=holds)
        known = known if steps is None or number is not None else known.with_steps("dt", steps, dims)
        sides = _sides(length, source.grid)
        opened = OwnData(source, source.grid, layout=layout, dt=number, length=sides)
        return _conditioned(_between(opened, boundary, nodes), known, None, history)
    paths = [Path(file) for file in files]
    apart = key is None and all({"train", "test"} <= set(source_keys(path)) for path in paths)

    def join(part: str | None) -> tuple[Source, Inputs, np.ndarray | None]:
        sources = [open_source(path, key=part, layout=layout) for path in paths]
        source = sources[0] if len(sources) == 1 else JoinedSource(sources)
        times = dt
        if isinstance(dt, str):
            times = np.concatenate([np.atleast_1d(input_arrays(path, [dt], part)[dt]) for path in paths])
        steps = None if times is None else time_steps(times, *source.shape[:2])
        if isinstance(inputs, Mapping):
            return source, Inputs.beside(source, dict(inputs), holds=holds), steps
        each = [
            Inputs.beside(one, input_arrays(path, inputs, part), holds=holds)
            for path, one in zip(paths, sources, strict=True)
        ]
        known = each[0] if len(each) == 1 else Inputs.join(each, [one.shape[0] for one in sources])
        return source, known, steps

    source, known, steps = join("train" if apart else key)
    test, test_known, test_steps = join("test") if apart else (None, None, None)
    number: float | str | None = _one_number(steps, test_steps)
    if number is None and steps is not None:
        number = name = dt if isinstance(dt, str) else "dt"
        known = known.with_steps(name, steps, source.grid.num_spatial_dims)
        if test_known is not None and test_steps is not None:
            test_known = test_known.with_steps(name, test_steps, source.grid.num_spatial_dims)
    named = tuple(str(path.absolute()) for path in paths)
    sides = _sides(length, source.grid)
    opened = OwnData(source, source.grid, test, named, key, layout, dt=number, length=sides)
    return _conditioned(_between(opened, boundary, nodes), known, test_known, history)


def _one_number(*steps: np.ndarray | None) -> float | None:
    """The one time step of all trajectories, or None if they differ in it."""
    found = np.unique(np.concatenate([np.ravel(s) for s in steps if s is not None] or [np.zeros(0)]))
    return float(found[0]) if len(found) == 1 else None


def _sides(length: float | Sequence[float] | None, grid: Grid) -> tuple[float, ...] | None:
    """The length of each side of the box."""
    if length is None:
        return None
    given = np.atleast_1d(np.asarray(length, float))
    given = np.repeat(given, grid.num_spatial_dims) if len(given) == 1 else given
    if len(given) != grid.num_spatial_dims or not (np.isfinite(given) & (given > 0)).all():
        raise InputError(
            f"--length {length} does not fit {grid.num_spatial_dims} axes. Give one positive number, or one "
            "for each axis."
        )
    return tuple(given.tolist())


def _between(data: OwnData, boundary: str | Walls | None, nodes: str | None) -> OwnData:
    """The data with the walls that were named."""
    if boundary is None and nodes is not None:
        raise InputError(f"--nodes {nodes} is about walls. Say which with --boundary too.")
    walls = find_walls(boundary, data.source, nodes) if isinstance(boundary, str) else boundary
    return dataclasses.replace(data, walls=walls)


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
    seen = survey(parts.train, data.grid.channels, data.history, data.walls)
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
        walls=data.walls,
        dt=data.dt,
        length=data.length,
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
        inputs=[spec.name for spec in task.inputs if spec.name != task.dt],
        holds=[spec.name for spec in task.inputs if spec.holds and spec.name != task.dt],
        boundary=task.walls,
        dt=task.dt,
        length=task.length,
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
