"""The first comment of every preset ends with a command that the command line accepts."""

import shlex

import click
import pytest
import typer

from fedloom.cli.main import app
from fedloom.settings.presets import names, preset


def parse(arguments: list[str]) -> click.Context:
    """Parse a command line without running it."""
    command, rest = typer.main.get_command(app), arguments[1:]
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command.make_context(" ".join(arguments), rest)


@pytest.mark.parametrize("name", names())
def test_the_first_comment_ends_with_a_command(name: str) -> None:
    about = preset(name).about
    command = about[about.rindex("fedloom ") :]
    parse(shlex.split(command))
    assert name in command or command == "fedloom demo"
