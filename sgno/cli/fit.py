"""`sgno fit`"""

import contextlib
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, parse_settings
from sgno.cli.outcome import check_seeds, median, print_table, run_shown, shown, summary


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Trajectories (samples, time, channels, *space) as .npy, .npz, HDF5 or zarr; "
            "several files are joined.",
        ),
    ],
    model: options.Model = "sgno",
    layout: Annotated[
        str | None,
        typer.Option(
            help="Another order of axes, such as 'sample time space channel'; a missing channel or sample is "
            "an axis of one, and x y z name the axes of space one by one."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Which array of the file. [default: train and test, or u, or the only one]"),
    ] = None,
    validation: Annotated[
        float, typer.Option(help="Part of the trajectories to choose by: a fraction or a number.")
    ] = 0.1,
    test: Annotated[
        float, typer.Option(help="Part of the trajectories to score on: a fraction or a number.")
    ] = 0.1,
    split_seed: Annotated[int, typer.Option(help="Draws the parts.", min=0)] = 0,
    normalise: Annotated[
        str,
        typer.Option(
            help="standard (mean 0, spread 1), scale (size 1, zero kept) or none, for each channel. "
            "[default: scale for sgno-x and linear, standard for the others]"
        ),
    ] = "auto",
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Leave the data on disk. [default: from 512 MB on]"),
    ] = None,
    seeds: options.Seeds = 1,
    first_seed: options.FirstSeed = 0,
    updates: options.Updates = None,
    batch: options.Batch = None,
    rate: options.Rate = None,
    warmup: options.Warmup = None,
    unroll: options.Unroll = None,
    pushforward: options.Pushforward = False,
    noise: options.Noise = None,
    precision: options.Precision = "float32",
    settings: options.Settings = None,
    out: options.Out = Path("runs"),
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of compiled programs. [default: $SGNO_CACHE or the user's cache]"),
    ] = None,
    track: options.Track = None,
    json: options.Json = False,
):
    """Train a model on your own trajectories, roll it out and score it on those held out.

    Sizes that are not given are chosen from the grid. The same command again answers from the store; after
    Ctrl-C it goes on where it stopped.
    """
    check_seeds(seeds, first_seed)
    from sgno.devices import use_every_core
    from sgno.io.split import Split
    from sgno.lab.data.own import open_data
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.fit import plan_fit
    from sgno.lab.job import run_job
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.recipe import TrainConfig
    from sgno.lab.store import Store
    from sgno.lab.tracking import parse_trackers

    trackers = parse_trackers(track)
    use_every_core(batch or TrainConfig().batch_size)

    plan = plan_fit(
        open_data(files, key=key, layout=layout),
        model,
        settings=parse_settings(settings or []),
        split=Split(validation, test, split_seed),
        normalise=normalise,
        stream=stream,
        training={
            "updates": updates,
            "batch_size": batch,
            "peak_rate": rate,
            "warmup": warmup,
            "unroll": unroll,
            "pushforward": pushforward or None,
            "noise": noise,
            "precision": precision,
        },
    )
    store = Store(out)
    jobs = [plan.job(first_seed + i) for i in range(seeds)]
    _say(plan)
    data = None if all(store.is_finished(job.id) for job in jobs) else plan.data.load()
    with _nothing_left(out):
        use_compilation_cache(cache or default_cache())
        records = [run_shown(job, store, functools.partial(run_job, data=data), trackers) for job in jobs]
    found = {
        **summary(plan.task.name, model, records, store),
        "validation_gmean100": median([r["validation"]["gmean100"] for r in records])
        if "validation" in records[0]
        else None,
        "weights": [str(store.weights(record["id"])) for record in records],
        "warnings": list(plan.warnings),
    }
    print_table(found, records)
    if found["validation_gmean100"] is not None:
        console.print(f"on the validation part: {shown(found['validation_gmean100'])}")
    console.print(f"weights: {found['weights'][0]}", soft_wrap=True, markup=False)
    if json:
        emit_json(found)


def _say(plan) -> None:
    """What was found in the file and what will be done with it, before anything takes long."""
    task = plan.task
    grid = "x".join(map(str, task.points))
    console.print(
        f"{task.name}: {task.num_train_samples} training and {task.num_test_samples} test trajectories, "
        f"{task.train_steps} steps, {task.channels} channel(s) on {grid} points"
        f"{', streamed from disk' if task.streamed else ''}",
        soft_wrap=True,
        markup=False,
    )
    for warning in plan.warnings:
        console.print(f"Warning: {warning}", style="yellow", soft_wrap=True, markup=False)


@contextlib.contextmanager
def _nothing_left(out: Path) -> Iterator[None]:
    """Remove an output folder that a failed run made and put neither a result nor a checkpoint in."""
    fresh = not out.exists()
    try:
        yield
    except BaseException:
        if fresh and not [*out.glob("jobs/*"), *out.glob("checkpoints/*")]:
            shutil.rmtree(out, ignore_errors=True)
        raise
