"""What is wrong with settings, as sentences with the thing, the value, choices and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.core.errors import shown, shown_text
from fedloom.settings.overrides import SHORT_NAMES

Path = tuple[Any, ...]  # of a setting, step by step


def describe_problem(error: Any, root: Any, defaults: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence. root: the model of all settings."""
    path, given = _dotted(error["loc"]), shown(error["input"])
    if error["type"] == "extra_forbidden":
        return _unknown(error["loc"], root, defaults)
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if error["type"] in ("model_type", "dict_type"):
        name = (_names(root, error["loc"]) or ["name"])[0]
        return f"{path}={given} is not a table; set one of its names, for example {path}.{name}"
    if problem := _wrong_length(error, root):
        return problem
    if error["type"] == "value_error":
        return f"{path}: {message}" if path else message
    return f"{path}={given} should be {message}{_meaning(root, error['loc'])}"


def _wrong_length(error: Any, root: Any) -> str | None:
    """A sentence if a setting of a fixed number of values has another number of them."""
    path = error["loc"][:-1] if error["type"] == "missing" else error["loc"]
    default = getattr(_field(root, path), "default", None)
    wrong = error["type"] in ("tuple_type", "missing", "too_long")
    if not wrong or not isinstance(default, tuple):
        return None
    count, example = len(default), list(default)
    return f"{_dotted(path)}={shown(error['input'])} should be {count} numbers, such as {example}"


def _dotted(path: Path) -> str:
    return shown_text(".".join(str(step) for step in path))


def _unknown(path: Path, root: Any, defaults: Mapping[str, Any]) -> str:
    siblings = _names(root, path[:-1])
    near = _nearest(str(path[-1])[:100], siblings, defaults)
    guess = f"; did you mean '{near}'?" if near else ""
    return f"no setting '{_dotted(path)}'{guess} (choices: {', '.join(siblings)})"


def _nearest(name: str, siblings: Sequence[str], defaults: Mapping[str, Any]) -> str | None:
    """The setting that was probably meant; one of another table by its full name.

    In this order: the same name in another table ("lr" for train.lr), a similar name in the same
    table ("round" for rounds), a similar name in another table ("momentums" for train.momentum).
    """
    # of several settings with this name, the one with a flag, else the least nested one
    paths = sorted(_dotted_names(defaults), key=lambda path: path.count("."), reverse=True)
    elsewhere = {path.rpartition(".")[2]: path for path in paths} | SHORT_NAMES
    if name in elsewhere:
        return elsewhere[name]
    if near := difflib.get_close_matches(name, siblings, n=1, cutoff=0.5):
        return near[0]
    near = difflib.get_close_matches(name, elsewhere, n=1, cutoff=0.75)
    return elsewhere[near[0]] if near else None


def _dotted_names(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The names of all settings in a table and the tables inside it."""
    names = []
    for name, value in table.items():
        path = f"{prefix}{name}"
        names += _dotted_names(value, f"{path}.") if isinstance(value, Mapping) else [path]
    return names


def _field(root: Any, path: Path) -> Any:
    """The pydantic field at a path; None if there is none."""
    model, field = root, None
    for step in path:
        fields = getattr(model, "model_fields", {})
        if step not in fields:
            return None
        field = fields[step]
        model = field.annotation
    return field


def _names(root: Any, path: Path) -> list[str]:
    """The names in the table at a path."""
    table = getattr(_field(root, path), "annotation", None) if path else root
    return list(getattr(table, "model_fields", {}))


def _meaning(root: Any, path: Path) -> str:
    description = getattr(_field(root, path), "description", None)
    return f" ({description})" if description else ""
