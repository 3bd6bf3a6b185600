"""`sgno frontier`"""

from pathlib import Path
from typing import Annotated

import typer

from sgno.cli import options
from sgno.cli.console import console, emit_json
from sgno.errors import InputError


def frontier(
    out: Annotated[
        Path, typer.Option(help="Folder of results; frontier.json goes there, and fits are kept.")
    ],
    task: Annotated[str, typer.Option(help="A task whose solver has substeps.")] = "kolm2d",
    substeps: Annotated[str, typer.Option(help="Substeps of the solver.")] = "1,2,4,5,10,20",
    inner_steps: Annotated[str, typer.Option(help="Inner steps of SGNO-X.")] = "1,2,4",
    points: Annotated[int | None, typer.Option(help="Grid points per axis. [default: the task's]")] = None,
    steps: Annotated[int, typer.Option(help="Steps that are timed together.")] = 20,
    repeats: Annotated[int, typer.Option(help="Rounds of timing.")] = 5,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Hold SGNO-X against the solver that made its data, both at several costs: error against time.

    `sgno report` on the same folder draws the two curves.
    """
    if steps < 1 or repeats < 1:
        raise InputError(f"--steps {steps} --repeats {repeats}: both must be at least 1.")
    chosen = {
        "--substeps": _counts("--substeps", substeps),
        "--inner-steps": _counts("--inner-steps", inner_steps),
    }
    from rich.table import Table

    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.frontier import frontier as measure
    from sgno.lab.store import Store
    from sgno.lab.tasks import get_task

    found = measure(
        get_task(task).with_options(num_points=points),
        Store(out).create(),
        substeps=chosen["--substeps"],
        inner_steps=chosen["--inner-steps"],
        repeats=repeats,
        steps=steps,
        cache=cache or default_cache(),
        say=lambda text: console.print(text, style="dim"),
    )
    table = Table(title=f"{task}: {found['states']} states, one step", title_justify="left")
    for heading in ("step", "GMean100", "stable step", "ms a step", "fastest", "slowest"):
        table.add_column(heading, justify="right")
    for point in found["points"]:
        score = point["gmean100"]
        table.add_row(
            f"{point['name']} {point['divisions']}",
            "non-finite" if score is None else f"{score:.3g}",
            str(point["stable_step"]),
            *(f"{1e3 * point[key]:.2f}" for key in ("seconds_per_step", "seconds_low", "seconds_high")),
        )
    console.print(table)
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
