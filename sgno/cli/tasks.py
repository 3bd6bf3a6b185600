"""`sgno tasks`"""

from typing import Annotated

import typer

from sgno.cli.console import answers, emit_json


def tasks(json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False):
    """List the ten tasks. Any other APEBench scenario works too, as apebench:NAME;key=value."""
    from rich.table import Table

    from sgno.lab.tasks import CARDS, TASKS

    if json:
        rows = [{**task.to_json(), **CARDS[name]._asdict()} for name, task in TASKS.items()]
        emit_json({"tasks": rows})
        return
    table = Table(
        title="Tasks", caption="Any other APEBench scenario: sgno run 'apebench:diff_burgers;num_points=96'"
    )
    for heading in ("name", "grid", "regime", "equation", "train", "test"):
        table.add_column(heading)
    for name, task in TASKS.items():
        card = CARDS[name]
        grid = "x".join([str(task.num_points)] * task.num_spatial_dims)
        train = f"{task.num_train_samples} x {task.train_steps} steps"
        test = f"{task.num_test_samples} x {task.test_steps} steps"
        table.add_row(name, grid, f"{card.regime}: {card.mechanism}", card.equation, train, test)
    answers.print(table)
