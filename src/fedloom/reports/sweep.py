"""What a setting does: runs that are there, by its value in each, a line for each method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.spec import parameters
from fedloom.methods.registry import entry
from fedloom.metrics.measures import measured
from fedloom.reports.client_scores import own, personal
from fedloom.reports.comparison import accuracies
from fedloom.reports.paper_table import CellResult
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import Config, load_file


def varied(paths: Sequence[Path], setting: str) -> list[CellResult]:
    """The figures of runs, with the values of a setting such as method.fedafa.lam as rows, in their order, and methods as columns.

    What is read is the clients' score if a method gives them models of their own, else the accuracy.
    """
    measure = "personal" if any(map(personal, paths)) else "accuracy"
    groups: dict[tuple[Any, str], list[float | None]] = {}
    for path in paths:
        config = load_file(path / CONFIG)
        found = measured(measure, accuracies(RunFolder.read_only(path).metrics()), own(path))
        groups.setdefault((value_of(config, setting), config.title), []).append(found)
    ordered = sorted(groups, key=lambda group: _rank(group[0]))
    return [
        CellResult(f"{setting.rpartition('.')[2]}={v}", title, tuple(groups[v, title]), None, 0.0)
        for v, title in ordered
    ]


def _rank(value: Any) -> tuple[bool, Any]:
    """Numbers by size, then words by the alphabet."""
    return (False, value) if isinstance(value, int | float) else (True, str(value))


def value_of(config: Config, setting: str) -> Any:
    """The value of a setting in a run; of a parameter of its method also where it was left at its default."""
    at: Any = config.model_dump(mode="json")
    at["method"] |= {w.name: {**_defaults(w.name), **w.args} for w in config.words}
    for step in setting.split("."):
        if not isinstance(at, dict) or step not in at:
            raise UserError(
                f"--by {setting}: a run of '{config.title}' has no setting '{step}' there; see its config.toml"
            )
        at = at[step]
    if isinstance(at, dict):
        raise UserError(
            f"--by {setting} is a table of settings; name one of them, for example {setting}.{next(iter(at), 'name')}"
        )
    return tuple(at) if isinstance(at, list) else at


def _defaults(method: str) -> dict[str, Any]:
    return {name: p.default for name, p in parameters(entry(method).make).items() if not p.required}
