"""`sgno run`"""

import functools
from pathlib import Path
from typing import Annotated

import typer

from sgno.cli import options
from sgno.cli.console import emit_json, parse_settings
from sgno.cli.outcome import check_seeds, print_table, run_shown, summary


def run(
    task: Annotated[str, typer.Argument(help="A task of `sgno tasks`, or 'apebench:NAME;key=value'.")],
    model: options.Model = "sgno",
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
    points: Annotated[int | None, typer.Option(help="Grid points per axis. [default: the task's]")] = None,
    train_samples: Annotated[int | None, typer.Option(help="Training trajectories. [default: 50]")] = None,
    test_samples: Annotated[
        int | None, typer.Option(help="Test trajectories. [default: 30; 10 in 3D]")
    ] = None,
    test_steps: Annotated[int | None, typer.Option(help="Steps of the test rollout. [default: 200]")] = None,
    settings: options.Settings = None,
    out: options.Out = Path("runs"),
    cache: options.Cache = None,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    track: options.Track = None,
    json: options.Json = False,
):
    """Train a model on a task, roll it out for 200 steps and score it.

    The same command again answers from the store; after Ctrl-C or a crash it goes on where it stopped. A run
    that another process is making is waited for.
    """
    check_seeds(seeds, first_seed)
    options.check_checkpoint_seconds(checkpoint_seconds)
    from sgno.devices import use_every_core
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.job import Job, run_job
    from sgno.lab.machine import use_compilation_cache
    from sgno.lab.recipe import TrainConfig
    from sgno.lab.store import Store
    from sgno.lab.tasks import get_task
    from sgno.lab.tracking import parse_trackers
    from sgno.registry import get_model, with_settings

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
    use_every_core(protocol.batch_size)
    store, cache = Store(out), cache or default_cache()
    store.sweep()
    use_compilation_cache(cache)
    jobs = [Job(chosen, model, config, protocol, first_seed + i) for i in range(seeds)]
    run_one = functools.partial(run_job, cache=cache, checkpoint_seconds=checkpoint_seconds)
    records = [run_shown(job, store, run_one, trackers) for job in jobs]
    found = summary(chosen.name, model, records, store)
    print_table(found, records)
    if json:
        emit_json(found)
