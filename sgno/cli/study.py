"""Many runs and what is made of them: reproduce, report, thin, frontier."""

import contextlib
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json, say, show_table, shown, visible
from sgno.errors import InputError

# Not followed by a closing bracket before an opening one.
_OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder of results; finished jobs in it are not run again.")],
    preset: Annotated[str, typer.Option(help="smoke (minutes), desk (a day or so) or paper.")] = "smoke",
    tasks: Annotated[
        list[str] | None, typer.Option(help="Only these tasks: a,b or repeated.", show_default="all ten")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Only these models: a,b or repeated.", show_default="the preset's"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Network seeds.", show_default="the preset's")] = None,
    workers: Annotated[
        int | None,
        options.running(help="Processes.", show_default="one per core"),
    ] = None,
    cluster: Annotated[
        str | None,
        options.running(
            help="Address of a Dask scheduler, or 'local' to start one on this machine.", show_default="none"
        ),
    ] = None,
    checkpoint_seconds: options.CheckpointSeconds = 30.0,
    estimate: Annotated[bool, options.running(help="Measure first how long it will take.")] = True,
    dry_run: Annotated[
        bool,
        options.running("--dry-run", help="Say what would be run, and run nothing."),
    ] = False,
    report: Annotated[bool, options.output(help="Thin the folder and write its report at the end.")] = True,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Run the paper's experiment, or a part of it, and write its report.

    The same command again goes on where it stopped; several may share one --out.
    """
    options.check_at_least(0, checkpoint_seconds=checkpoint_seconds)
    options.check_at_least(1, workers=workers)
    options.check_writable(out)
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.executor import run_study
    from sgno.lab.live import Board, Watcher
    from sgno.lab.presets import get_preset, make_jobs, preset_plans
    from sgno.lab.store import Store

    chosen = get_preset(preset)
    jobs = make_jobs(preset_plans(chosen, tasks=_names(tasks), models=_names(models), seeds=seeds))
    store, cache = Store(out), cache or default_cache()
    left = [job for job in jobs if not store.is_finished(job.id)]
    say(f"{preset}: {chosen.summary}")
    say(f"{len(jobs)} jobs, {len(jobs) - len(left)} of them finished already in {out}")
    summary: dict[str, Any] = {"preset": preset, "out": str(out), "jobs": len(jobs), "left": len(left)}
    if dry_run:
        _print_jobs(left)
        if json:
            emit_json({**summary, "ids": [job.id for job in jobs]})
        return
    expected: dict[str, float] = {}
    failed: list[str] = []
    if left:
        store.create()
        if not chosen.optimise:
            # The workers are processes of their own: they learn it from the environment.
            os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        with contextlib.ExitStack() as stack:
            executor = stack.enter_context(_executor(cluster, workers))
            if estimate:
                expected = _estimate(left, store, executor, cache, chosen.estimate_seconds)
            watcher = stack.enter_context(Watcher(Board(jobs, expected), console))
            outcome = run_study(
                jobs, store, executor, cache=cache, watch=watcher, checkpoint_seconds=checkpoint_seconds
            )
            failed = list(outcome.failed)
    say(f"{len(jobs) - len(failed)} of {len(jobs)} jobs are in {store.root}")
    if failed:
        place = store.root / "failed"
        say(f"{len(failed)} failed: see {place}; the same command tries them again", style="red")
    summary |= {
        "finished": len(jobs) - len(failed),
        "failed": failed,
        "expected_seconds": sum(expected.values()),
    }
    if report:
        from sgno.lab.report import write_report
        from sgno.lab.thin import thin as make_thin

        make_thin(store.root)
        summary["report"] = str(write_report(store.root))
        say(f"Report: {summary['report']}")
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
    workers = "1 worker" if executor.slots == 1 else f"{executor.slots} workers"
    say(
        f"About {duration(found.total(executor.slots))} for {len(left)} jobs with {workers} "
        f"({found.measured} of {found.settings} settings measured, the others judged by them)"
    )
    return dict(found.seconds)


def _print_jobs(jobs) -> None:
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for job in jobs:
        grid = "x".join([str(job.task.num_points)] * job.task.num_spatial_dims)
        counts = rows.setdefault((job.task.name, grid), {})
        counts[job.model_name] = counts.get(job.model_name, 0) + 1
    headings = ("task", "grid", "models (seeds)")
    lines = [(*row, ", ".join(f"{m} ({n})" for m, n in counts.items())) for row, counts in rows.items()]
    show_table(console, "Jobs that would run", headings, lines, left=("grid",), text=headings[2:])


class Format(StrEnum):
    """What a report can be written as."""

    html = "html"
    md = "md"
    csv = "csv"
    tex = "tex"


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of `sgno run` or `sgno reproduce`.")
    ],
    format: Annotated[
        Format, typer.Option(help="One HTML page, or the tables as Markdown, CSV or LaTeX.")
    ] = Format.html,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="DIR/report.html; standard output for the others"),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write the figures to this folder, as PNG and SVG.", show_default="none"),
    ] = None,
):
    """Make tables, figures and one interactive page from a folder of finished runs.

    The page is a single file that works offline and in print. What was not run is shown as not run.
    """
    options.check_writable(out or (folder if format is Format.html else None))
    options.check_writable(figures)
    from sgno.io.commit import write_bytes
    from sgno.lab.report import render_tables, write_report

    if format is Format.html:
        path = write_report(folder, out)
        say(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).")
    else:
        text = render_tables(folder, format.value)
        if out is None:
            print(visible(text), end="", flush=True)
        else:
            write_bytes(out, [text.encode()])
            say(f"Wrote {out}.")
    if figures is not None:
        from sgno.lab.report.figures import write_figures

        say(f"Wrote {len(write_figures(folder, figures))} figures to {figures}.")


def thin(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of `sgno run` or `sgno reproduce`.")
    ],
    json: options.Json = False,
):
    """Make a folder of results small: records and weights stay, curves and pictures are packed.

    What a report shows stays: `sgno reproduce` does the same at its end.
    """
    options.check_writable(folder)
    from sgno.lab.thin import thin as make_thin

    sizes = make_thin(folder)
    say(f"{folder}: {sizes.before / 1e6:.1f} MB before, {sizes.after / 1e6:.1f} MB now.")
    if json:
        emit_json(sizes._asdict())


def frontier(
    out: Annotated[
        Path, typer.Option(help="Folder of results; frontier.json goes there, and fits are kept.")
    ],
    task: Annotated[str, typer.Option(help="A task whose solver has substeps.")] = "kolm2d",
    substeps: Annotated[str, typer.Option(help="Substeps of the solver.")] = "1,2,4,5,10,20",
    inner_steps: Annotated[str, typer.Option(help="Inner steps of SGNO-X.")] = "1,2,4",
    points: options.Points = None,
    steps: Annotated[int, typer.Option(help="Steps that are timed together.")] = 20,
    repeats: Annotated[int, typer.Option(help="Rounds of timing.")] = 5,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Compare SGNO-X with the solver that made its data, both at several costs: error against time.

    `sgno report` on the same folder draws the two curves.
    """
    options.check_at_least(1, steps=steps, repeats=repeats)
    solver, ours = _counts("--substeps", substeps), _counts("--inner-steps", inner_steps)
    options.check_writable(out)
    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.frontier import frontier as measure
    from sgno.lab.store import Store
    from sgno.lab.tasks import get_task

    found = measure(
        get_task(task).with_options(num_points=points),
        Store(out).create(),
        substeps=solver,
        inner_steps=ours,
        repeats=repeats,
        steps=steps,
        cache=cache or default_cache(),
        say=lambda text: say(text, style="dim"),
    )
    times = ("seconds_per_step", "seconds_low", "seconds_high")
    rows = [
        (
            f"{point['name']} {point['divisions']}",
            shown(point["gmean100"], 3),
            str(point["stable_step"]),
            *(f"{1e3 * point[key]:.2f}" for key in times),
        )
        for point in found["points"]
    ]
    headings = ("step", "GMean100", "stable step", "ms a step", "fastest", "slowest")
    show_table(console, f"{task}: {found['states']} states, one step", headings, rows)
    if json:
        emit_json(found)


def _counts(flag: str, text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or len(set(counts)) != len(counts):
        raise InputError(f"{flag} {text}: give different whole numbers from 1 on, such as 1,2,4.")
    return counts
