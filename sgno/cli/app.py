"""All commands of `sgno`."""

import typer

from sgno.cli.certify import certify
from sgno.cli.console import guarded
from sgno.cli.demo import demo
from sgno.cli.evaluate import evaluate
from sgno.cli.explain import explain
from sgno.cli.export import export
from sgno.cli.fit import fit
from sgno.cli.frontier import frontier
from sgno.cli.models import models
from sgno.cli.report import report
from sgno.cli.reproduce import reproduce
from sgno.cli.rollout import rollout
from sgno.cli.run import run
from sgno.cli.tasks import tasks
from sgno.cli.zoo import zoo

app = typer.Typer(
    help="Surrogates of time-dependent PDEs that stay accurate and finite over hundreds of steps.\n\n"
    "Start with [bold]sgno tasks[/bold] and [bold]sgno models[/bold], then "
    "[bold]sgno run ks1d --model sgno --updates 1000[/bold].",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

# One a line: commands are added often.
_COMMANDS = (
    demo,
    tasks,
    models,
    run,
    fit,
    reproduce,
    report,
    explain,
    frontier,
    zoo,
    rollout,
    evaluate,
    export,
    certify,
)
for command in _COMMANDS:
    app.command()(guarded(command))


def main() -> None:
    """Entry point of the installed command."""
    app()
