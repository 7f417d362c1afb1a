"""The public Python API: the names of the package, and its main classes and functions in full."""

from __future__ import annotations

import inspect
import textwrap
from functools import cached_property
from pathlib import Path
from typing import Any

import fedloom
from docparts.markdown import code, table

IN_FULL = (
    "Experiment",
    "Run",
    "open",
    "compare",
    "sweep",
    "tune",
    "Comparison",
    "method",
    "Callback",
    "RoundRecord",
    "RunResult",
    "cut",
    "data",
)
WIDTH = 100


def api_names(root: Path) -> str:
    """Every name of the package with the first paragraph of its docstring."""
    names = [name for name in fedloom.__all__ if not name.startswith("_")]
    rows = [[_link(name), _summary(getattr(fedloom, name))] for name in names]
    return table(["name", "what it is"], rows)


def api(root: Path) -> str:
    """A section for each of the main names: its signature, docstring and members."""
    return "\n\n".join(_section(name, getattr(fedloom, name)) for name in IN_FULL)


def _link(name: str) -> str:
    text = f"`fl.{name}`"
    return f"[{text}](#fl{name.lower()})" if name in IN_FULL else text


def _summary(documented: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _section(name: str, documented: Any) -> str:
    parts = [f"## fl.{name}"]
    if callable(documented) and not _is_record(documented):
        parts.append(code(_signature(f"fl.{name}", documented), "python"))
    parts.append(code(inspect.getdoc(documented) or ""))
    if members := _members(documented):
        parts.append(table(["member", "what it is"], members))
    return "\n\n".join(parts)


def _is_record(documented: Any) -> bool:
    """Whether users only receive such objects and never make one."""
    return documented in (fedloom.Run, fedloom.Comparison, fedloom.RoundRecord, fedloom.RunResult)


def _signature(name: str, function: Any) -> str:
    """The call with all parameters and defaults, without types."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"
    ]
    short = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return textwrap.fill(f"{name}{short}", WIDTH, subsequent_indent="    ")


def _members(documented: Any) -> list[list[str]]:
    """The documented public methods and properties of a class."""
    if not inspect.isclass(documented):
        return []
    rows = []
    for name, member in vars(documented).items():
        is_property = isinstance(member, property | cached_property)
        if name.startswith("_") or not (is_property or inspect.isfunction(member)):
            continue
        if about := inspect.getdoc(member):
            title = name if is_property else _signature(name, member)
            rows.append([f"`{' '.join(title.split())}`", " ".join(about.split())])
    return rows
