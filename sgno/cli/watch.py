"""The long-run monitor on the command line: what a rollout is held against, and what was noticed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgno.cli.console import console
from sgno.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from sgno.solve.monitor import Reference

# Statistics need no more training data than this, and it fits into memory anywhere.
_MOST_BYTES = 512 * 2**20


def reference(data: str, key: str | None, layout: str | None, cache: Path | None) -> "Reference":
    """The statistics of training trajectories, from a file or by the name of a task.

    **Raises:** `InputError` if there is neither, or if the trajectories have one time only.
    """
    from sgno.solve.monitor import reference_statistics

    trajectories = _trajectories(data, key, layout, cache)
    if trajectories.shape[1] < 2:
        raise InputError(f"{data} has one time only, so it does not say how states change. Give two or more.")
    return reference_statistics(trajectories)


def _trajectories(data: str, key: str | None, layout: str | None, cache: Path | None) -> "np.ndarray":
    from sgno.io.source import open_source
    from sgno.lab.data.trajectories import default_cache, load_trajectories
    from sgno.lab.tasks import TASKS, get_task

    if not Path(data).exists() and (data in TASKS or data.startswith("apebench:")):
        return load_trajectories(get_task(data), cache or default_cache()).train
    source = open_source(data, key=key, layout=layout, prefer=("train", "u"))
    each = source.nbytes // source.shape[0]
    count = min(source.shape[0], max(1, _MOST_BYTES // max(each, 1)))
    if count < source.shape[0]:
        console.print(f"Watched by the first {count} of {source.shape[0]} trajectories.", markup=False)
    return source.read(slice(0, count))


def faults(data: str, first: "np.ndarray", predictable: bool) -> dict[str, Any]:
    """For the record: when each fault began in each sample, None for never, and whether phases have a law."""
    from sgno.solve.monitor import FAULTS

    began = {fault: [int(t) or None for t in row] for fault, row in zip(FAULTS, first, strict=True)}
    return {"data": data, "phases_predictable": predictable, "first_step": began}


def say(found: dict[str, Any], steps: int) -> None:
    """One line a fault."""
    for fault, began in found["first_step"].items():
        seen = [t for t in began if t is not None]
        if seen:
            text = f"first at step {min(seen):,}, in {len(seen)} of {len(began)} sample(s)"
        elif fault == "phase" and not found["phases_predictable"]:
            text = "no law of the phases in these data, so nothing to hold them against"
        else:
            text = f"not seen up to step {steps:,}"
        console.print(f"  {fault}: {text}.", style="yellow" if seen else None, markup=False, highlight=False)
