"""The command line: every command with its options and its example, read off the typer app rather than off a screen."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from docparts.markdown import between, code, table, typed
from fedloom.cli.main import app

EXAMPLE = "Example: "


def walk(
    command: click.Command | None = None, name: str = "fedloom"
) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its full name."""
    command = command or typer.main.get_command(app)
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from walk(below, f"{name} {word}")
    else:
        yield name, command


def said(command: click.Command) -> tuple[str, str]:
    """What a command's help says, and the example at its end."""
    about, _, example = (command.help or "").partition(EXAMPLE)
    return about.strip(), example.strip()


def commands(root: Path) -> str:
    """A section for every command."""
    return "\n\n".join(_section(name, command) for name, command in walk())


def _section(name: str, command: click.Command) -> str:
    about, example = said(command)
    hints = typing.get_type_hints(command.callback, include_extras=True)
    rows = [_row(p, hints[p.name].__metadata__[0]) for p in command.params if p.name in hints]
    return "\n\n".join(
        [
            f"## {name}",
            about,
            code(example, "sh"),
            table(["option", "type", "default", "meaning"], rows),
        ]
    )


def _row(param: click.Parameter, info: Any) -> list[str]:
    """The meaning comes from the signature: some versions of click drop that of an argument."""
    argument, flag = isinstance(param, click.Argument), getattr(param, "is_flag", False)
    name = param.name.upper() if argument and param.name else ", ".join(param.opts)
    limits = between(low=getattr(param.type, "min", None), high=getattr(param.type, "max", None))
    kind = " ".join(["flag" if flag else param.type.name.removesuffix(" range"), limits]).strip()
    default = "" if flag or param.default is None else f"`{typed(param.default)}`"
    repeated = " Repeatable." if param.multiple and "repeatable" not in info.help else ""
    return [f"`{name}`", kind, "to be given" if param.required else default, info.help + repeated]
