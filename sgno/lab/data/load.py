"""The trajectories of any task: APEBench's, or the user's own."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgno.io.files import content_id
from sgno.lab.data.own import OwnTask, load_own
from sgno.lab.data.trajectories import Trajectories, data_id, load_trajectories
from sgno.lab.tasks import Task


@functools.singledispatch
def load_data(task: Task, cache: Path | None = None) -> Trajectories:
    """The data of a task: made by APEBench and cached, or read from the files that it names."""
    return load_trajectories(task, cache)


@load_data.register
def _(task: OwnTask, cache: Path | None = None) -> Trajectories:
    del cache
    return load_own(task)


@functools.singledispatch
def id_of_data(task: Task) -> str:
    """An id of a task's data, without loading them."""
    return data_id(task)


@id_of_data.register
def _(task: OwnTask) -> str:
    return content_id(task.data_settings())


def task_from_json(content: Mapping[str, Any]) -> Task | OwnTask:
    """The task that `to_json` wrote, of either kind."""
    return OwnTask.from_json(content) if "content" in content else Task.from_json(content)
