"""The page of commands, from the commands themselves."""

import re

import typer

from sgno.cli.app import app

_HEAD = """# Commands

This page is made from the commands themselves (`sgno COMMAND --help` says the same).

Progress and tables go to standard error. With `--json` the last line of standard output is one JSON object.
Exit codes: 0 done, 1 some jobs of a study failed, 2 wrong input (one line says what to do), 130 interrupted.
`SGNO_DEBUG=1` shows the traceback of a wrong input. `SGNO_CACHE` is where generated data and compiled
programs go.
"""


def page() -> str:
    """Every command with its arguments, options and defaults."""
    group = typer.main.get_command(app)
    names = group.list_commands(None)  # pyright: ignore[reportAttributeAccessIssue]
    commands = {name: group.get_command(None, name) for name in names}  # pyright: ignore[reportAttributeAccessIssue]
    return "\n".join([_HEAD, *(_command(name, command) for name, command in commands.items())])


def _command(name: str, command) -> str:
    help_text = re.sub(r"\s*\n(?!\n)\s*", " ", (command.help or "").replace("\n\n", "\0")).replace(
        "\0", "\n\n"
    )
    lines = [f"## sgno {name}", "", _plain(help_text), ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name != "argument" and p.name != "help"]
    if arguments:
        lines += ["| Argument | |", "| --- | --- |"]
        lines += [
            f"| `{(p.metavar or p.name).upper()}` | {_cell(getattr(p, 'help', None))} |" for p in arguments
        ]
        lines += [""]
    if options:
        lines += ["| Option | | Default |", "| --- | --- | --- |"]
        for option in options:
            names = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
            help_text, default = _default(option)
            lines.append(f"| {names} | {_cell(help_text)} | {default} |")
        lines += [""]
    return "\n".join(lines)


def _default(option) -> tuple[str, str]:
    """The help, and the default: the value, or what it stands for."""
    text = option.help or ""
    if isinstance(option.show_default, str):
        return text, _cell(option.show_default)
    if option.required:
        return text, "required"
    value = option.default
    if value is None or isinstance(value, bool) or "Sentinel" in type(value).__name__ or value == ():
        return text, "on" if value is True else ""
    return text, f"`{getattr(value, 'value', value)}`"


def _cell(text: str | None) -> str:
    return _plain(" ".join((text or "").split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text of the console as Markdown: no markup of rich, and no HTML."""
    return (
        re.sub(r"\[/?\w+\]", "", text)
        .replace("<", "&lt;")
        .replace("*space", "\\*space")
        .replace("*points", "\\*points")
    )
