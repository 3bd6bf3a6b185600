"""The `sgno` command. Heavy imports happen inside the commands, so that help is instant."""

from sgno.cli.app import main as main
