"""`sgno bench`"""

from pathlib import Path
from typing import Annotated

import typer

from sgno.cli.console import console, emit_json


def bench(
    only: Annotated[
        list[str] | None,
        typer.Argument(help="Groups to measure, or beginnings of their names, such as update or rollout-3d."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and the figures.")] = Path("results/bench"),
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run on sizes that say nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure even what is already there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The summary as JSON on standard output.")] = False,
):
    """Measure speed and memory on this machine: ratios first, then times, JSON and two figures.

    Compares SGNO with a PyTorch writing of it (needs the extra "bench" and a checkout), the baselines under
    our loop and under APEBench's trainer, and the reference solver. Leave the machine alone meanwhile. An
    interrupted run goes on where it stopped.
    """
    from benchmarks.speed.run import run_benchmark
    from benchmarks.speed.text import lines

    def say(text: str) -> None:
        console.print(text, markup=False, style="dim")

    content = run_benchmark(out, small=quick, only=only or (), again=again, say=say)
    for line in lines(content):
        console.print(line, markup=False, soft_wrap=True)
    if json:
        emit_json(content["summary"])
