"""The settings of a run: every table and key of `Config`, the defaults as a file, the presets."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from docparts.markdown import between, code, prose, table, typed
from fedloom.core.signature import MAX_COUNT
from fedloom.core.spec import Spec
from fedloom.settings.config import Config, Settings
from fedloom.settings.presets import names, preset

TYPE_NAMES = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    Spec: "name(arguments)",
    dict: "name or table",
}
BOUNDS = {"ge": "low", "gt": "above", "le": "high", "lt": "below"}


def settings(root: Path) -> str:
    """A section for each table, the top level first."""
    return "\n\n".join(_section(path, model) for path, model in tables(Config))


def tables(model: type[Settings], path: str = "") -> Iterator[tuple[str, type[Settings]]]:
    """The table and all tables inside it, with their paths."""
    yield path, model
    for name, field in model.model_fields.items():
        if _is_table(field):
            inner = typing.cast(type[Settings], field.annotation)
            yield from tables(inner, f"{path}.{name}" if path else name)


def _is_table(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Settings)


def _section(path: str, model: type[Settings]) -> str:
    rows = [_row(name, field) for name, field in model.model_fields.items() if not _is_table(field)]
    head = f"## [{path}]" if path else "## The top level"
    columns = ["setting", "type", "range", "default", "meaning"]
    return "\n\n".join([head, prose(model), table(columns, rows)])


def _row(name: str, field: FieldInfo) -> list[str]:
    bounds = {
        bound: getattr(constraint, key)
        for constraint in field.metadata
        for key, bound in BOUNDS.items()
        if getattr(constraint, key, None) not in (None, MAX_COUNT, 2**63)  # said once, above
    }
    return [
        f"`{name}`",
        _kind(field.annotation),
        between(**bounds),
        f"`{_default(field.default)}`",
        field.description or "",
    ]


def _kind(hint: Any) -> str:
    """The type in words."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(inside)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_kind, inside))
    if origin is typing.Annotated:
        return _kind(inside[0])
    if origin is tuple:
        return f"list of {_kind(inside[0])}"
    return "none" if hint is type(None) else TYPE_NAMES[origin or hint]


def _default(value: Any) -> str:
    if isinstance(value, Spec):
        arguments = ", ".join(f"{key}={typed(v)}" for key, v in value.args.items())
        return f"{value.name}({arguments})" if arguments else value.name
    return str(value["name"]) if isinstance(value, dict) else typed(value)


def defaults(root: Path) -> str:
    """Every setting at its default, as a file."""
    return code(Config().text(), "toml")


def presets(root: Path) -> str:
    """All presets with the first comments of their files."""
    rows = [[f"`{name}`", preset(name).about] for name in names()]
    return table(["preset", "what it is for"], rows)
