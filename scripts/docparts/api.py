"""The public Python API: the names of the package, and its main classes and functions in full."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fedloom
from docparts.markdown import code, table

# The pages of docs/reference, in order, with the names that each describes. `method` and `Method`
# are on different pages, since their sections would have the same anchor.
PAGES = {
    "experiments": (
        "Experiment",
        "Run",
        "open",
        "compare",
        "sweep",
        "tune",
        "Comparison",
        "method",
    ),
    "records": ("RoundRecord", "RunResult", "Callback", "Progress"),
    "blocks": (
        *("Method", "Phase", "Stage", "Exchange", "Extra", "Step", "Job", "Cohort", "Param", "Key"),
        *("Chain", "cut"),
    ),
    "modules": (
        *("data", "models", "methods", "stages", "losses", "presets", "trackers"),
        *("UserError", "RunError"),
    ),
}
FILES = {"blocks": "building-blocks"}  # where the file is not named like the part
WIDTH = 100


def api_names(root: Path) -> str:
    """Every name of the package with the first paragraph of its docstring."""
    names = [name for name in fedloom.__all__ if not name.startswith("_")]
    rows = [[_link(name), _summary(getattr(fedloom, name))] for name in names]
    return table(["name", "what it is"], rows)


def api(page: str) -> Callable[[Path], str]:
    """The writer of a page's part: a section for each of its names."""
    return lambda root: "\n\n".join(
        section for name in PAGES[page] for section in _sections(name, getattr(fedloom, name))
    )


def _sections(name: str, documented: Any) -> Iterator[str]:
    """The section of a name, and of the functions and classes of a module."""
    yield _section(f"## fl.{name}", f"fl.{name}", documented)
    if inspect.ismodule(documented):
        for inner in getattr(documented, "__all__", ()):
            member = getattr(documented, inner)
            if callable(member) and inner not in fedloom.__all__:
                yield _section(f"### fl.{name}.{inner}", f"fl.{name}.{inner}", member)


def _link(name: str) -> str:
    page = next(page for page, names in PAGES.items() if name in names)
    return f"[`fl.{name}`](reference/{FILES.get(page, page)}.md#fl{name.lower()})"


def _summary(documented: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(documented) or "").partition("\n\n")[0].split())


def _section(heading: str, name: str, documented: Any) -> str:
    parts = [heading]
    if callable(documented) and not _is_received(documented):
        parts.append(code(_signature(name, documented)))
    parts.append(code(inspect.getdoc(documented) or ""))
    if members := _members(documented):
        parts.append(table(["member", "what it is"], members))
    return "\n\n".join(parts)


def _is_received(documented: Any) -> bool:
    """Whether users only receive such objects and never make one."""
    results = (fedloom.Run, fedloom.Comparison, fedloom.RoundRecord, fedloom.RunResult)
    given = (fedloom.Step, fedloom.Job, fedloom.Cohort, fedloom.UserError, fedloom.RunError)
    return documented in (*results, *given)


def _signature(name: str, function: Any) -> str:
    """The call with all parameters and defaults, without types."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=p.empty, default=_Shown.of(p.default))
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    short = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return textwrap.fill(f"{name}{short}", WIDTH, subsequent_indent="    ")


@dataclass(frozen=True)
class _Shown:
    """A default value as a signature shows it, the same in every process."""

    text: str

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, default: Any) -> Any:
        if default is inspect.Parameter.empty:
            return default
        if inspect.isfunction(default):
            return cls(default.__name__)
        return cls("...") if " at 0x" in repr(default) else default


def _members(documented: Any) -> list[list[str]]:
    """The documented public methods and properties of a class."""
    if not inspect.isclass(documented):
        return []
    rows = []
    for name, member in vars(documented).items():
        is_property = isinstance(member, property | cached_property)
        if name.startswith("_") or not (is_property or inspect.isfunction(member)):
            continue
        is_field = name in getattr(documented, "__dataclass_fields__", ())
        if not is_field and (about := member.__doc__):
            title = name if is_property else _signature(name, member)
            rows.append([f"`{' '.join(title.split())}`", " ".join(about.split())])
    return rows
