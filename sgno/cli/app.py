"""All commands of `sgno`. A command is imported when it is called, and the list of commands needs none."""

import difflib
import importlib
import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sgno.cli.console import answers, guarded, orderly_end

# By group: the name, the module that has a function of that name, and what the list of commands says.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Your data": {
        "demo": ("demo", "See it work: data, fits, the equation found, a page. About two minutes."),
        "example": ("catalogue", "Write a small file of trajectories to try the other commands on."),
        "fit": ("training", "Train a model on your own trajectories and score it."),
        "discover": ("discover", "Find the PDE behind your trajectories, in your units."),
        "explain": ("explain", "Say what SGNO-X learned: rates, strongest terms, forcing."),
        "report": ("study", "Make tables, figures and one page from a folder of finished runs."),
    },
    "A trained model": {
        "zoo": ("catalogue", "List the trained models that come with the package."),
        "rollout": ("rollout", "Roll a model out, however far, and write the states as they come."),
        "evaluate": ("evaluate", "Score a model on trajectories: compare a rollout at every step."),
        "certify": ("certify", "Say what is guaranteed of a model for every input."),
        "play": ("play", "Write a page in which models run live: draw on the state, compare."),
        "export": ("export", "Export a model for use without this package."),
    },
    "The paper": {
        "tasks": ("catalogue", "List the ten tasks."),
        "models": ("catalogue", "List the models, or show the settings and sizes of one."),
        "run": ("training", "Train a model on a task, roll it out for 200 steps and score it."),
        "reproduce": ("study", "Run the paper's experiment, or a part of it, and write its report."),
        "frontier": ("study", "Compare SGNO-X with its solver: error against time."),
        "thin": ("study", "Make a folder of results small: what a report shows stays."),
    },
}
_MODULES = {name: module for group in COMMANDS.values() for name, (module, _) in group.items()}
# Words of other libraries, and what they are called here.
_OTHER_WORDS = {
    "--learning-rate": "--rate",
    "--lr": "--rate",
    "--batch-size": "--batch",
    "--epochs": "--updates",
    "--iterations": "--updates",
    "--seed": "--first-seed",
    "--output": "--out",
    "--axes": "--layout",
    "--dataset": "--data",
}


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {name for param in self.params for name in param.opts}
        for word in (arg.partition("=")[0] for arg in args):
            if word not in known and _OTHER_WORDS.get(word) in known:
                ctx.fail(f"No such option: {word}. Here it is {_OTHER_WORDS[word]}.")
        return super().parse_args(ctx, args)


class _Commands(TyperGroup):
    """Commands by name, imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULES:
            return None
        function = getattr(importlib.import_module(f"sgno.cli.{_MODULES[cmd_name]}"), cmd_name)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(cmd_name, cls=_Command)(guarded(function))
        return typer.main.get_command(single)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in _MODULES and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _MODULES, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint} Known: {', '.join(_MODULES)}.")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Written here: typer's own would import every command to say one line about each."""
        del formatter
        answers.print("\nUsage: sgno COMMAND [OPTIONS]\n")
        answers.print(f"{self.help}\n")
        for group, commands in COMMANDS.items():
            answers.print(group, style="bold")
            for name, (_, text) in commands.items():
                answers.print(f"  [cyan]{name:<11}[/cyan] {text}", markup=True)
            answers.print()
        answers.print("Options", style="bold")
        answers.print("  [cyan]--version[/cyan]   Print the version.", markup=True)
        answers.print(
            "  [cyan]--help[/cyan]      This list; after a command, its arguments and options.\n", markup=True
        )
        answers.print("Start with: sgno example burgers.npz, sgno fit burgers.npz, sgno report runs")


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(asked: bool) -> bool:
    if asked:
        import sgno

        print(f"sgno {sgno.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def _sgno(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Surrogates of time-dependent PDEs that stay accurate and finite over hundreds of steps."""


def main() -> None:
    """Entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal in the C locale, or a name that is no text, must not end a command that did its work.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with orderly_end():
        app()
