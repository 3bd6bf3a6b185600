"""`sgno run`"""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli.console import console, emit_json, parse_settings
from sgno.errors import InputError


def run(
    task: Annotated[str, typer.Argument(help="A task of `sgno tasks`, or 'apebench:NAME;key=value'.")],
    model: Annotated[
        str, typer.Option(help="A model of `sgno models`, or an APEBench network string.")
    ] = "sgno",
    seeds: Annotated[int, typer.Option(help="How many network seeds, starting from --first-seed.")] = 1,
    first_seed: Annotated[int, typer.Option(help="The first network seed.")] = 0,
    updates: Annotated[
        int | None, typer.Option(help="Training updates. [default: the protocol's 10,000]")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Batch size. [default: 20]")] = None,
    rate: Annotated[float | None, typer.Option(help="Peak learning rate. [default: 1e-3]")] = None,
    warmup: Annotated[int | None, typer.Option(help="Warm-up updates. [default: 2,000]")] = None,
    unroll: Annotated[int | None, typer.Option(help="Train through so many steps. [default: 1]")] = None,
    pushforward: Annotated[bool, typer.Option(help="Cut the gradient between unrolled steps.")] = False,
    noise: Annotated[
        float | None, typer.Option(help="Input noise, as a fraction of the data's spread.")
    ] = None,
    precision: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    points: Annotated[int | None, typer.Option(help="Grid points per axis. [default: the task's]")] = None,
    train_samples: Annotated[int | None, typer.Option(help="Training trajectories. [default: 50]")] = None,
    test_samples: Annotated[
        int | None, typer.Option(help="Test trajectories. [default: 30; 10 in 3D]")
    ] = None,
    test_steps: Annotated[int | None, typer.Option(help="Steps of the test rollout. [default: 200]")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the model, for example --set width=8.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of finished runs; a finished run answers from it.")
    ] = Path("runs"),
    cache: Annotated[
        Path | None, typer.Option(help="Folder of generated data. [default: $SGNO_CACHE or the user's cache]")
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(help="Also track with tensorboard, wandb (offline) or both: --track tensorboard,wandb"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line of standard output.")
    ] = False,
):
    """Train a model on a task, roll it out for 200 steps and score it.

    The same command again answers from the store; after Ctrl-C it goes on where it stopped.
    """
    if seeds < 1 or first_seed < 0:
        raise InputError(
            f"--seeds {seeds} --first-seed {first_seed}: use at least one seed, numbered from 0."
        )
    from sgno.data.trajectories import default_cache
    from sgno.models.registry import get_model, with_settings
    from sgno.study.compilation import use_compilation_cache
    from sgno.study.job import Job, run_job
    from sgno.study.store import Store
    from sgno.tasks import get_task
    from sgno.training.config import TrainConfig
    from sgno.training.tracking import parse_trackers

    trackers = parse_trackers(track)
    chosen = get_task(task).with_options(
        num_points=points,
        num_train_samples=train_samples,
        num_test_samples=test_samples,
        test_steps=test_steps,
    )
    config = with_settings(get_model(model, chosen.num_spatial_dims), parse_settings(settings or []))
    protocol = TrainConfig.for_model(
        config,
        updates=updates,
        batch_size=batch,
        peak_rate=rate,
        warmup=warmup,
        unroll=unroll,
        pushforward=pushforward or None,
        noise=noise,
        precision=precision,
    )
    store = Store(out).create()
    cache = cache or default_cache()
    use_compilation_cache(cache)
    jobs = [Job(chosen, model, config, protocol, first_seed + i) for i in range(seeds)]
    records = [_run_shown(job, store, cache, run_job, trackers) for job in jobs]
    summary = _summary(chosen.name, model, records, store)
    _print_table(summary, records)
    if json:
        emit_json(summary)


def _run_shown(job, store, cache, run_job, trackers: list[str]) -> dict[str, Any]:
    """One job under a progress bar, heard by its trackers."""
    from sgno.cli.progress import training_bar
    from sgno.training.tracking import numbers_of, tracking

    label = f"{job.task.name} {job.model_name} seed {job.seed}"
    if store.is_finished(job.id):
        return store.record(job.id)
    console.print(f"{label}: preparing data and compiling ...")
    folder = store.root / "tracking" / job.id
    with (
        tracking(trackers, folder, label, job.to_json()) as heard_by,
        training_bar(label, job.train.updates) as advance,
    ):

        def on_progress(progress) -> None:
            advance(progress)
            for tracker in heard_by:
                tracker.log(progress.update, numbers_of(progress))

        record = run_job(job, store, cache=cache, on_progress=on_progress)
        for tracker in heard_by:
            tracker.log(job.train.updates, {key: record[key] for key in ("gmean100", "stable_step")})
    if record["diverged_at"] is not None:
        console.print(
            f"[yellow]{label}: the loss became non-finite at update {record['diverged_at']}.[/yellow]"
        )
    return record


def _summary(task: str, model: str, records: list[dict[str, Any]], store) -> dict[str, Any]:
    import numpy as np

    def median(values: list[float | None]) -> float | None:
        """The median with a non-finite score counted as worse than any other."""
        middle = float(np.median([np.inf if value is None else value for value in values]))
        return middle if np.isfinite(middle) else None

    first = records[0]
    per_step = zip(*(record["mean_nrmse"] for record in records), strict=True)
    speeds = [record["seconds_per_update"] for record in records if record["seconds_per_update"] is not None]
    return {
        "task": task,
        "model": model,
        "seeds": [record["job"]["seed"] for record in records],
        "gmean100": median([record["gmean100"] for record in records]),
        "gmean100_per_seed": [record["gmean100"] for record in records],
        "stable_step": float(np.median([record["stable_step"] for record in records])),
        "nonfinite_steps": [record["nonfinite_steps"] for record in records],
        "mean_nrmse": [median(list(step)) for step in per_step],
        "params": first["params"],
        "params_real": first["params_real"],
        "seconds_per_update": float(np.median(speeds)) if speeds else None,
        "versions": first["versions"],
        "run": [str(store.job(record["id"])) for record in records],
    }


def _print_table(summary: dict[str, Any], records: list[dict[str, Any]]) -> None:
    from rich.table import Table

    def shown(value: float | None) -> str:
        return "non-finite" if value is None else f"{value:.4g}"

    table = Table(title=f"{summary['task']}, {summary['model']}", title_justify="left")
    for heading in (
        "seed",
        "GMean100",
        "stable step",
        "nRMSE 1 / 100 / last",
        "non-finite steps",
        "ms/update",
    ):
        table.add_column(heading, justify="right")
    for record in records:
        errors = record["mean_nrmse"]
        marks = " / ".join(shown(errors[i]) for i in (0, min(99, len(errors) - 1), -1))
        speed = record["seconds_per_update"]
        table.add_row(
            str(record["job"]["seed"]),
            shown(record["gmean100"]),
            f"{record['stable_step']}",
            marks,
            str(record["nonfinite_steps"]),
            "-" if speed is None else f"{1e3 * speed:.1f}",
        )
    console.print(table)
    console.print(
        f"median GMean100 {shown(summary['gmean100'])}, {summary['params']:,} parameters "
        f"({summary['params_real']:,} real numbers)"
    )
