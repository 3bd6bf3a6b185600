"""`sgno zoo`"""

from typing import Annotated

import typer

from sgno.cli.console import answers, emit_json


def zoo(
    name: Annotated[str | None, typer.Argument(help="Show one card whole, for example ks1d/sgno-x.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
):
    """List the trained models that come with the package.

    Their names work wherever WEIGHTS is asked for, and in Python as sgno.load("ks1d/sgno-x").
    """
    from rich.table import Table

    from sgno.lab.zoo import shelf

    found = shelf.cards() if name is None else [shelf.card(name)]
    if json:
        emit_json({"zoo": [card.to_json() for card in found]})
        return
    if name is not None:
        answers.print_json(data=found[0].to_json())
        return
    table = Table(title="Zoo", caption='sgno rollout ks1d/sgno-x ..., or sgno.load("ks1d/sgno-x") in Python')
    for heading in ("name", "grid", "GMean100", "stable step", "seed", "updates", "real numbers", "kB"):
        table.add_column(heading, justify="left" if heading in ("name", "grid") else "right")
    for card in found:
        grid = "x".join([str(card.task["num_points"])] * card.task["num_spatial_dims"])
        stable = f"{card.stable_step} of {card.task['test_steps']}"
        seed = f"{card.seed} of {len(card.seeds)}"
        updates, real = f"{card.train['updates']:,}", f"{card.params_real:,}"
        size = f"{card.bytes / 1000:.0f}"
        table.add_row(card.name, grid, card.score, stable, seed, updates, real, size)
    answers.print(table)
