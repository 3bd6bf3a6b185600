"""`sgno reproduce`"""

import contextlib
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json
from sgno.errors import InputError

# Not followed by a closing bracket before an opening one.
_OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder of results; finished jobs in it are not run again.")],
    preset: Annotated[str, typer.Option(help="smoke (minutes), desk (a day or so) or paper.")] = "smoke",
    tasks: Annotated[
        list[str] | None, typer.Option(help="Only these tasks: a,b or repeated. [default: all ten]")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help="Only these models: a,b or repeated. [default: the preset's]")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Network seeds. [default: the preset's]")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes. [default: one per core]")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, or 'local' to start one on this machine.")
    ] = None,
    cache: options.Cache = None,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    estimate: Annotated[bool, typer.Option(help="Measure first how long it will take.")] = True,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and run nothing.")
    ] = False,
    json: options.Json = False,
):
    """Run the paper's experiment, or a part of it, and write its report.

    The same command again goes on where it stopped; several may share one --out.
    """
    options.check_checkpoint_seconds(checkpoint_seconds)
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers} must be at least 1.")
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.executor import run_study
    from sgno.lab.live import Board, Watcher
    from sgno.lab.presets import get_preset, make_jobs, preset_plans
    from sgno.lab.store import Store

    chosen = get_preset(preset)
    jobs = make_jobs(preset_plans(chosen, tasks=_names(tasks), models=_names(models), seeds=seeds))
    store, cache = Store(out), cache or default_cache()
    left = [job for job in jobs if not store.is_finished(job.id)]
    console.print(f"{preset}: {chosen.summary}")
    console.print(f"{len(jobs)} jobs, {len(jobs) - len(left)} of them finished already in {out}")
    summary: dict[str, Any] = {"preset": preset, "out": str(out), "jobs": len(jobs), "left": len(left)}
    if dry_run:
        _print_jobs(left)
        if json:
            emit_json({**summary, "ids": [job.id for job in jobs]})
        return
    expected: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        if left:
            store.create()
            if not chosen.optimise:
                # The workers are processes of their own: they learn it from the environment.
                os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
            executor = stack.enter_context(_executor(cluster, workers))
            if estimate:
                expected = _estimate(left, store, executor, cache, chosen.estimate_seconds)
            watcher = stack.enter_context(Watcher(Board(jobs, expected), console))
            outcome = run_study(
                jobs, store, executor, cache=cache, watch=watcher, checkpoint_seconds=checkpoint_seconds
            )
            failed = list(outcome.failed)
        else:
            failed = []
    _print_end(jobs, failed, store)
    summary |= {
        "finished": len(jobs) - len(failed),
        "failed": failed,
        "expected_seconds": sum(expected.values()),
    }
    if report:
        summary["report"] = _report(store.root)
    if json:
        emit_json(summary)
    if failed:
        raise typer.Exit(1)


def _names(given: list[str] | None) -> list[str] | None:
    """Names given repeatedly or with commas. A comma within brackets belongs to a setting of a scenario."""
    if not given:
        return None
    return [name.strip() for text in given for name in _OUTER_COMMA.split(text) if name.strip()]


def _executor(cluster: str | None, workers: int | None):
    if cluster is None:
        from sgno.lab.local import LocalProcesses

        return LocalProcesses(workers)
    from sgno.lab.cluster import DaskCluster

    return DaskCluster(cluster, workers)


def _estimate(left, store, executor, cache: Path, seconds: float) -> dict[str, float]:
    from sgno.lab.estimate import estimate
    from sgno.lab.live import duration

    with console.status("Measuring how long it will take ..."):
        found = estimate(left, store, executor, cache=cache, seconds=seconds)
    slots = executor.slots
    workers = "1 worker" if slots == 1 else f"{slots} workers"
    console.print(
        f"About {duration(found.total(slots))} for {len(left)} jobs with {workers} "
        f"({found.measured} of {found.settings} settings measured, the others judged by them)"
    )
    return dict(found.seconds)


def _print_jobs(jobs) -> None:
    from rich.table import Table

    rows: dict[tuple[str, int, int], dict[str, int]] = {}
    for job in jobs:
        counts = rows.setdefault((job.task.name, job.task.num_points, job.task.num_spatial_dims), {})
        counts[job.model_name] = counts.get(job.model_name, 0) + 1
    table = Table(title="Jobs that would run", title_justify="left")
    for heading in ("task", "grid", "models (seeds)"):
        table.add_column(heading)
    for (task, points, dims), counts in rows.items():
        table.add_row(
            task, "x".join([str(points)] * dims), ", ".join(f"{m} ({n})" for m, n in counts.items())
        )
    console.print(table)


def _print_end(jobs, failed: list[str], store) -> None:
    console.print(f"{len(jobs) - len(failed)} of {len(jobs)} jobs are in {store.root}")
    if failed:
        console.print(
            f"[red]{len(failed)} failed:[/red] see {store.root / 'failed'}; the same command tries them again"
        )


def _report(root: Path) -> str:
    from sgno.lab.report import write_report

    page = write_report(root)
    console.print(f"Report: {page}")
    return str(page)
