"""`sgno models`"""

from typing import Annotated

import typer

from sgno.cli.console import answers, emit_json
from sgno.errors import InputError


def models(
    dim: Annotated[
        int | None, typer.Option(help="Only this number of spatial dimensions: 1, 2 or 3.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
):
    """List the models with their settings and parameters, counted both ways.

    "params" counts a complex number once, as the paper does; "real" counts real numbers.
    """
    if dim is not None and dim not in (1, 2, 3):
        raise InputError(f"--dim {dim} must be 1, 2 or 3.")
    rows = _rows([dim] if dim else [1, 2, 3])
    if json:
        emit_json({"models": rows})
        return
    from rich.table import Table

    table = Table(
        title="Models", caption="Any APEBench network works too, for example --model 'MoRes;26;8;relu'"
    )
    for heading in ("name", "dim", "settings", "params", "real", "what it is"):
        table.add_column(heading, justify="right" if heading in ("params", "real") else "left")
    for row in rows:
        settings = ", ".join(f"{k}={v}" for k, v in row["settings"].items() if k != "kind")
        numbers = ("?" if row[key] is None else f"{row[key]:,}" for key in ("params", "params_real"))
        summary = f"{row['role']}: {row['summary']}" if row["role"] == "ablation" else row["summary"]
        table.add_row(row["name"], f"{row['dim']}D", settings, *numbers, summary)
    answers.print(table)


def _rows(dims: list[int]) -> list[dict]:
    import equinox as eqx
    import jax

    from sgno.grid import Grid
    from sgno.registry import MODELS
    from sgno.step import count_parameters

    points = {1: (160,), 2: (64, 64), 3: (32, 32, 32)}
    rows = []
    for dim in dims:
        for name, entry in MODELS.items():
            if dim not in entry.settings:
                continue
            config, grid = entry.config(dim), Grid(1, points[dim])
            # Shapes are enough to count; no weight is drawn.
            try:
                step = eqx.filter_eval_shape(lambda c=config, g=grid: c.build(g, key=jax.random.PRNGKey(0)))
                count = count_parameters(step)
            except InputError:
                # A network of APEBench without APEBench.
                count = None
            rows.append(
                {
                    "name": name,
                    "dim": dim,
                    "role": entry.role,
                    "family": entry.family,
                    "settings": config.to_json(),
                    "params": count and count.params,
                    "params_real": count and count.real,
                    "summary": entry.summary,
                }
            )
    return rows
