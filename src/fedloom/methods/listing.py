"""The methods of this package, read from their source files without importing them.

Importing a method imports torch, which takes seconds; reading its source takes milliseconds. Each
module of this folder is a method, named after its file. The first line of its docstring is
"Name: summary", the constants PAPER and LINK give the reference, and ALIASES other names.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedloom.core.errors import unknown_name

FOLDER = Path(__file__).parent
NOT_METHODS = ("__init__", "listing", "registry")


@dataclass(frozen=True)
class MethodInfo:
    """What a method's module says about it. text: the whole docstring."""

    name: str
    paper: str
    link: str
    text: str
    aliases: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return summary(self.text)

    @property
    def module(self) -> str:
        """The module's name, which is also that of its function."""
        return self.name.replace("-", "_")


def summary(text: str) -> str:
    """The first line of a method's docstring, without the name.

    >>> summary("FedAvg: local SGD, then an average.")
    'local SGD, then an average.'
    """
    first_line = text.strip().partition("\n")[0]
    return first_line.partition(": ")[2]


@cache
def names() -> tuple[str, ...]:
    """The names of all methods, sorted."""
    stems = [file.stem for file in FOLDER.glob("*.py") if file.stem not in NOT_METHODS]
    return tuple(sorted(stem.replace("_", "-") for stem in stems))


@cache
def describe(name: str) -> MethodInfo:
    """The method with this name or alias; raises UserError with the nearest name otherwise."""
    if name in names():
        return _read(name)
    by_alias = {alias: info for info in describe_all() for alias in info.aliases}
    if name not in by_alias:
        raise unknown_name("method", name, [*names(), *by_alias], see="fedloom methods")
    return by_alias[name]


def describe_all() -> list[MethodInfo]:
    """All methods, sorted by name."""
    return [_read(name) for name in names()]


@cache
def _read(name: str) -> MethodInfo:
    file = FOLDER / f"{name.replace('-', '_')}.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    constants = _constants(tree)
    return MethodInfo(
        name,
        constants["PAPER"],
        constants["LINK"],
        ast.get_docstring(tree, clean=False) or "",
        constants.get("ALIASES", ()),
    )


def _constants(tree: ast.Module) -> dict[str, Any]:
    """The module-level assignments of PAPER, LINK and ALIASES, which are literals."""
    wanted = ("PAPER", "LINK", "ALIASES")
    return {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in wanted
    }
