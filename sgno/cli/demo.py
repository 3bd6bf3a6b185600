"""`sgno demo`"""

from pathlib import Path
from typing import Annotated

import typer

from sgno.cli.console import console

TASK, MODELS, UPDATES = "ks1d", ("sgno", "fno"), 2000


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results, the figure and the report.")] = Path(
        "demo"
    ),
):
    """Compare SGNO with APEBench's FNO on Kuramoto-Sivashinsky, with a fifth of the paper's budget."""
    from rich.table import Table

    from sgno.lab.data.trajectories import default_cache
    from sgno.lab.executor import run_study
    from sgno.lab.job import Job
    from sgno.lab.live import Board, Watcher
    from sgno.lab.local import LocalProcesses
    from sgno.lab.recipe import TrainConfig
    from sgno.lab.report import write_report
    from sgno.lab.report.figures.everything import write_figures
    from sgno.lab.store import Store
    from sgno.lab.tasks import get_task
    from sgno.registry import get_model

    task, store = get_task(TASK), Store(out).create()
    configs = {name: get_model(name, task.num_spatial_dims) for name in MODELS}
    jobs = [
        Job(task, name, config, TrainConfig.for_model(config, updates=UPDATES))
        for name, config in configs.items()
    ]
    console.print(f"Training {' and '.join(MODELS)} on {TASK} for {UPDATES:,} updates, one core each ...")
    with LocalProcesses(len(jobs)) as workers, Watcher(Board(jobs, {}), console) as watch:
        run_study(jobs, store, workers, cache=default_cache(), watch=watch)
    table = Table(title=f"{TASK}: 200 steps from 30 unseen states", title_justify="left")
    for heading in ("model", "GMean100", "steps below 20 % error", "parameters", "training"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for job in jobs:
        record = store.record(job.id)
        score = "non-finite" if record["gmean100"] is None else f"{record['gmean100']:.3f}"
        row = (
            score,
            str(record["stable_step"]),
            f"{record['params_real']:,}",
            f"{record['train_seconds']:.0f} s",
        )
        table.add_row(job.model_name, *row)
    console.print(table)
    figures = [path for path in write_figures(out, out / "figures") if path.suffix == ".png"]
    page = write_report(out)
    for path in figures:
        console.print(f"Figure: {path}")
    console.print(f"Report: {page}")
