"""Every command has an example, and every example, in a help text or on a page, parses."""

import shlex
from pathlib import Path

import click
import pytest
import typer
from docparts.commands import split_help, walk
from reading import named, pages, shown
from typer.testing import CliRunner

from fedloom.cli.main import app

COMMANDS = dict(walk())
every_command = pytest.mark.parametrize("name", COMMANDS)


def parse(words: list[str]) -> click.Context:
    """A command line, parsed but not run."""
    command, rest = typer.main.get_command(app), words[1:]
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command.make_context(" ".join(words), rest)


@every_command
def test_the_help_ends_with_an_example_that_parses(name: str) -> None:
    about, example = split_help(COMMANDS[name])
    assert about.endswith(".")
    assert example.startswith("fedloom ")
    parse(shlex.split(example))


@every_command
def test_help_can_be_shown(name: str) -> None:
    done = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    assert done.exit_code == 0
    assert "Example: fedloom" in " ".join(done.output.split())


@every_command
def test_every_option_has_a_meaning(name: str) -> None:
    assert [
        p.name for p in COMMANDS[name].params if isinstance(p, click.Option) and not p.help
    ] == []


@pytest.mark.parametrize("page", [p for p in pages() if shown(p)], ids=named)
def test_commands_on_pages_parse(page: Path) -> None:
    for words in shown(page):
        if words[0] == "fedloom":
            parse(words)


@pytest.mark.parametrize(
    "line", ["fedloom run --metod fedavg", "fedloom run --rounds few", "fedloom data add heart"]
)
def test_a_wrong_command_does_not_parse(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line.split())
