"""`sgno run` and `sgno fit`: train, roll out, score."""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, progress_bar, say, show_table, shown
from sgno.errors import InputError

if TYPE_CHECKING:
    from sgno.lab.auto import Auto, Tried


def run(
    task: Annotated[str, typer.Argument(help="A task of `sgno tasks`, or 'apebench:NAME;key=value'.")],
    model: options.Model = "sgno",
    settings: options.Settings = None,
    precision: options.Precision = "float32",
    updates: options.Updates = None,
    batch: options.Batch = None,
    rate: options.Rate = None,
    warmup: options.Warmup = None,
    unroll: options.Unroll = None,
    pushforward: options.Pushforward = False,
    noise: options.Noise = None,
    points: options.Points = None,
    train_samples: Annotated[
        int | None, options.data(help="Training trajectories.", show_default="50")
    ] = None,
    test_samples: Annotated[
        int | None, options.data(help="Test trajectories.", show_default="30; 10 in 3D")
    ] = None,
    test_steps: Annotated[
        int | None, options.data(help="Steps of the test rollout.", show_default="200")
    ] = None,
    seeds: options.Seeds = 1,
    first_seed: options.FirstSeed = 0,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    out: options.Out = Path("runs"),
    cache: options.Cache = None,
    track: options.Track = None,
    json: options.Json = False,
):
    """Train a model on a task, roll it out for 200 steps and score it.

    The same command again answers from the store; after Ctrl-C or a crash it goes on where it stopped. A run
    that another process is making is waited for.
    """
    _check_seeds(seeds, first_seed)
    options.check_at_least(0, checkpoint_seconds=checkpoint_seconds)
    _check_new(out)
    from sgno.lab.tasks import get_task

    chosen = get_task(task).with_options(
        num_points=points,
        num_train_samples=train_samples,
        num_test_samples=test_samples,
        test_steps=test_steps,
    )
    from sgno.devices import use_every_core
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.job import Job, run_job
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.recipe import TrainConfig
    from sgno.lab.store import Store
    from sgno.lab.tracking import parse_trackers
    from sgno.registry import get_model, with_settings

    trackers = parse_trackers(track)
    config = with_settings(get_model(model, chosen.num_spatial_dims), options.parse_settings(settings))
    protocol = TrainConfig.for_model(
        config,
        **_training(updates, batch, rate, warmup, unroll, pushforward, noise, precision),
    )
    use_every_core(protocol.batch_size)
    store, cache = Store(out), cache or default_cache()
    store.sweep()
    use_compilation_cache(cache)
    jobs = [Job(chosen, model, config, protocol, first_seed + i) for i in range(seeds)]
    run_one = partial(run_job, store=store, cache=cache, checkpoint_seconds=checkpoint_seconds)
    records = [_run_shown(job, store, run_one, trackers) for job in jobs]
    found = _summary(chosen.name, model, records, store)
    _show(found, records)
    if json:
        emit_json(found)


def fit(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Trajectories (samples, time, channels, *space) as .npy, .npz, HDF5 or zarr; "
            "several files are joined.",
        ),
    ],
    model: Annotated[
        str,
        options.model(
            help="auto tries several, the cheapest first, and takes the best forecaster; or a model of "
            "`sgno models`, or an APEBench network string."
        ),
    ] = "auto",
    minutes: Annotated[float | None, options.model(help="What auto may take.", show_default="5")] = None,
    settings: options.Settings = None,
    precision: options.Precision = "float32",
    layout: options.Layout = None,
    key: Annotated[
        str | None,
        options.data(help="Which array of the file.", show_default="train and test, u, or the only one"),
    ] = None,
    inputs: options.Inputs = None,
    holds: options.Holds = None,
    history: options.History = 1,
    boundary: options.Boundary = None,
    nodes: options.Nodes = None,
    dt: options.TimeStep = None,
    length: options.Length = None,
    validation: Annotated[
        float, options.data(help="Part of the trajectories to choose by: a fraction or a number.")
    ] = 0.1,
    test: Annotated[
        float, options.data(help="Part of the trajectories to score on: a fraction or a number.")
    ] = 0.1,
    split_seed: Annotated[int, options.data(help="Draws the parts.", min=0)] = 0,
    normalise: Annotated[
        str,
        options.data(
            help="standard (mean 0, spread 1), scale (size 1, zero kept) or none, for each channel; auto is "
            "scale for sgno-x and linear, standard for the others."
        ),
    ] = "auto",
    stream: Annotated[
        bool | None,
        options.data("--stream/--no-stream", help="Leave the data on disk.", show_default="from 512 MB on"),
    ] = None,
    updates: options.Updates = None,
    batch: options.Batch = None,
    rate: options.Rate = None,
    warmup: options.Warmup = None,
    unroll: options.Unroll = None,
    pushforward: options.Pushforward = False,
    noise: options.Noise = None,
    level: options.Level = 0.2,
    probability: options.Probability = 0.9,
    seeds: options.Seeds = 1,
    first_seed: options.FirstSeed = 0,
    out: options.Out = Path("runs"),
    cache: options.Cache = None,
    track: options.Track = None,
    json: options.Json = False,
):
    """Find the best forecaster of your own trajectories, or train the model you name; score it on those held
    out, and say for how many steps it can be trusted.

    Sizes that are not given are chosen from the grid. The same command again answers from the store; after
    Ctrl-C it goes on where it stopped.
    """
    _check_seeds(seeds, first_seed)
    _check_new(out)
    from sgno.io.source import source_keys

    for file in files:
        source_keys(file)
    from sgno.devices import use_every_core
    from sgno.io.split import Split
    from sgno.lab.auto import summary
    from sgno.lab.data.own import open_data
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.fit import plan_fit, plan_search, stored_horizon
    from sgno.lab.job import Job, run_job
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.recipe import TrainConfig
    from sgno.lab.store import Store
    from sgno.lab.tracking import parse_trackers
    from sgno.solve.forecast_horizon import check_claim

    check_claim(level, probability)
    automatic = model == "auto"
    if minutes is not None and not automatic:
        raise InputError(
            f"--minutes {minutes:g} is for --model auto. Say how long {model} trains by --updates."
        )
    trackers = parse_trackers(track)
    use_every_core(batch or TrainConfig().batch_size)
    changed = options.parse_settings(settings)
    training = _training(updates, batch, rate, warmup, unroll, pushforward, noise, precision)
    plan = plan_fit(
        open_data(
            files,
            key=key,
            layout=layout,
            history=history,
            inputs=options.parse_names(inputs),
            holds=options.parse_names(holds),
            boundary=boundary,
            nodes=nodes,
            dt=options.number_or_name(dt),
            length=options.parse_numbers("length", length),
        ),
        "persistence" if automatic else model,
        settings={} if automatic else changed,
        split=Split(validation, test, split_seed),
        normalise=normalise,
        stream=stream,
        training=training,
    )
    store = Store(out)
    loaded = functools.cache(plan.data.load)

    def run_one(job: Job, **shown: Any) -> dict[str, Any]:
        return run_job(job, store, data=loaded(), **shown)

    run_shown = partial(_run_shown, store=store, run=run_one, trackers=trackers)
    search = None
    if automatic:
        how = {"minutes": minutes, "normalise": normalise, "settings": changed, "training": training}
        search = plan_search(plan.data, store, seed=first_seed, **how)
    _say_plan(plan)
    with _nothing_left(out):
        use_compilation_cache(cache or default_cache())
        if search is None:
            first = plan.job(first_seed)
        else:
            chosen = search.found or search.choose(loaded(), run_shown)
            first = Job.from_json(store.record(chosen.job)["job"])
        records = [run_shown(dataclasses.replace(first, seed=first_seed + i)) for i in range(seeds)]
    horizon = stored_horizon(store, records[0]["id"], level=level, probability=probability)
    validated = "validation" in records[0]
    found = {
        **_summary(plan.task.name, first.model_name, records, store),
        "validation_gmean100": _median([r["validation"]["gmean100"] for r in records]) if validated else None,
        "weights": [str(store.weights(record["id"])) for record in records],
        "warnings": list(plan.warnings),
        "horizon": horizon.to_json(),
    }
    if search is not None and search.found is not None:
        found["auto"] = search.found.to_json()
        _show_tried(search.found)
    _show(found, records)
    if found["validation_gmean100"] is not None:
        console.print(f"on the validation part: {shown(found['validation_gmean100'])}")
    if search is not None and search.found is not None:
        say(summary(search.found, records[0], len(plan.warnings)))
    say(str(horizon))
    say(f"weights: {found['weights'][0]}")
    if json:
        emit_json(found)


def _show_tried(found: "Auto") -> None:
    """A row a candidate: its error where the choice is made, beside that of persistence."""

    def row(tried: "Tried") -> tuple[str, ...]:
        measured = tried.outcome == "tried"
        return (
            tried.model,
            shown(tried.error) if measured else "-",
            f"{tried.score / found.persistence.score:.2g}" if measured and tried.error is not None else "-",
            f"{tried.updates:,}" if tried.updates else "-",
            f"{tried.seconds:.0f}",
            "chosen" if tried.model == found.chosen else tried.reason or "",
        )

    headings = ("model", "error", "of persistence", "updates", "seconds", "")
    title = "Tried, judged by forecasts of the validation part"
    show_table(console, title, headings, map(row, found.tried), text=("",), left=("",), drop=("seconds",))


def _check_new(out: Path) -> None:
    """A folder of runs that exists answers for what is finished, even where nothing can be written."""
    if not out.is_dir():
        options.check_writable(out)


def _check_seeds(seeds: int, first_seed: int) -> None:
    if seeds < 1 or first_seed < 0:
        raise InputError(
            f"--seeds {seeds} --first-seed {first_seed}: use at least one seed, numbered from 0."
        )


def _training(updates, batch, rate, warmup, unroll, pushforward, noise, precision) -> dict[str, Any]:
    """The options as fields of `TrainConfig`; None is the default of the model."""
    return {
        "updates": updates,
        "batch_size": batch,
        "peak_rate": rate,
        "warmup": warmup,
        "unroll": unroll,
        "pushforward": pushforward or None,
        "noise": noise,
        "precision": precision,
    }


def _say_plan(plan) -> None:
    """What was found in the file and what will be done with it, before anything takes long."""
    task = plan.task
    say(
        f"{task.name}: {task.num_train_samples} training and {task.num_test_samples} test trajectories, "
        f"{task.train_steps} steps, {task.channels} channel(s) on {'x'.join(map(str, task.points))} points"
        f"{', streamed from disk' if task.streamed else ''}"
    )
    if task.inputs:
        say(f"Known inputs: {', '.join(spec.name for spec in task.inputs)}, given and not predicted.")
    if task.walls is not None:
        say(f"{task.walls} The model learns states continued beyond the walls.")
    if task.history > 1:
        say(f"The model sees {task.history} frames, so a rollout starts from {task.history} frames.")
    for warning in plan.warnings:
        say(f"Warning: {warning}", style="yellow")


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


def _run_shown(job, store, run: Callable[..., dict[str, Any]], trackers: list[str]) -> dict[str, Any]:
    """One job under a progress bar, heard by its trackers. `run` takes the job and `on_progress`."""
    from sgno.lab.machine import forget_programs
    from sgno.lab.tracking import numbers_of, tracking
    from sgno.progress import listening

    label = f"{job.task.name} {job.model_name} seed {job.seed}"
    if store.is_finished(job.id):
        return store.record(job.id)
    forget_programs()
    with (
        tracking(trackers, store.root / "tracking" / job.id, label, job.to_json()) as heard_by,
        progress_bar(label, job.train.updates, training=True) as advance,
        listening(advance),
    ):

        def on_progress(progress) -> None:
            advance(progress)
            for tracker in heard_by:
                tracker.log(progress.update, numbers_of(progress))

        record = run(job, on_progress=on_progress)
        for tracker in heard_by:
            tracker.log(job.train.updates, {key: record[key] for key in ("gmean100", "stable_step")})
    if record["diverged_at"] is not None:
        say(f"{label}: the loss became non-finite at update {record['diverged_at']}.", style="yellow")
    return record


def _summary(task: str, model: str, records: Sequence[dict[str, Any]], store) -> dict[str, Any]:
    """Medians over seeds, and where each run is."""
    import numpy as np

    first = records[0]
    per_step = zip(*(record["mean_nrmse"] for record in records), strict=True)
    speeds = [record["seconds_per_update"] for record in records if record["seconds_per_update"] is not None]
    return {
        "task": task,
        "model": model,
        "seeds": [record["job"]["seed"] for record in records],
        "gmean100": _median([record["gmean100"] for record in records]),
        "gmean100_per_seed": [record["gmean100"] for record in records],
        "stable_step": float(np.median([record["stable_step"] for record in records])),
        "nonfinite_steps": [record["nonfinite_steps"] for record in records],
        "mean_nrmse": [_median(list(step)) for step in per_step],
        "params": first["params"],
        "params_real": first["params_real"],
        "seconds_per_update": float(np.median(speeds)) if speeds else None,
        "versions": first["versions"],
        "run": [str(store.job(record["id"])) for record in records],
    }


def _median(values: Sequence[float | None]) -> float | None:
    """The median with a non-finite score counted as worse than any other."""
    import numpy as np

    middle = float(np.median([np.inf if value is None else value for value in values]))
    return middle if np.isfinite(middle) else None


def _show(found: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
    """One line a seed, then the median and the size."""

    def row(record: dict[str, Any]) -> tuple[str, ...]:
        errors, speed = record["mean_nrmse"], record["seconds_per_update"]
        return (
            str(record["job"]["seed"]),
            shown(record["gmean100"]),
            str(record["stable_step"]),
            " / ".join(shown(errors[i]) for i in (0, min(99, len(errors) - 1), -1)),
            str(record["nonfinite_steps"]),
            "-" if speed is None else f"{1e3 * speed:.1f}",
        )

    headings = ("seed", "GMean100", "stable step", "nRMSE 1 / 100 / last", "non-finite steps", "ms/update")
    drop = ("ms/update", "nRMSE 1 / 100 / last", "non-finite steps")
    show_table(console, f"{found['task']}, {found['model']}", headings, map(row, records), drop=drop)
    console.print(
        f"median GMean100 {shown(found['gmean100'])}, {found['params']:,} parameters "
        f"({found['params_real']:,} real numbers)"
    )
