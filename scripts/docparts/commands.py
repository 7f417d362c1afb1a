"""The command line: every command with its options and its example, taken from the typer app."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

from docparts.markdown import between, code, table, typed
from fedloom.cli.main import app

EXAMPLE = " Example: "


def walk(
    command: click.Command | None = None, name: str = "fedloom"
) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, with its full name."""
    command = command or typer.main.get_command(app)
    if isinstance(command, click.Group):
        for subname, subcommand in command.commands.items():
            yield from walk(subcommand, f"{name} {subname}")
    else:
        yield name, command


def split_help(command: click.Command) -> tuple[str, str]:
    """The text of a command's help, on one line, and the example at its end."""
    about, _, example = " ".join((command.help or "").split()).partition(EXAMPLE)
    return about, example


def commands(root: Path) -> str:
    """A section for each command."""
    return "\n\n".join(_section(name, command) for name, command in walk())


def _section(name: str, command: click.Command) -> str:
    about, example = split_help(command)
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
    # The meaning is taken from the signature: some versions of click drop an argument's help.
    repeatable = " Repeatable." if param.multiple and "repeatable" not in info.help else ""
    return [f"`{_name(param)}`", _kind(param), _default(param), info.help + repeatable]


def _name(param: click.Parameter) -> str:
    if not isinstance(param, click.Argument):
        return ", ".join(param.opts)
    return (param.metavar or (param.name or "").upper()).strip("[]")  # as --help calls it


def _kind(param: click.Parameter) -> str:
    if _is_flag(param):
        return "flag"
    limits = between(low=getattr(param.type, "min", None), high=getattr(param.type, "max", None))
    return f"{param.type.name.removesuffix(' range')} {limits}".strip()


def _default(param: click.Parameter) -> str:
    if param.required:
        return "required"
    return "" if _is_flag(param) or param.default is None else f"`{typed(param.default)}`"


def _is_flag(param: click.Parameter) -> bool:
    return bool(getattr(param, "is_flag", False))
