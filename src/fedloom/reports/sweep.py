"""The effect of a setting: existing runs arranged by its value, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.spec import Spec, parameters
from fedloom.core.user_code import is_reference
from fedloom.experiment.stored_run import StoredRun
from fedloom.methods.registry import entry
from fedloom.metrics.measures import measured
from fedloom.reports.client_scores import final_scores, is_personalised
from fedloom.reports.paper_table import CellResult
from fedloom.settings.config import Config


def by_setting(runs: Sequence[StoredRun], setting: str) -> list[CellResult]:
    """Figures with the values of a setting (such as method.fedafa.lam) as rows, methods as columns.

    The figure is the clients' score if any method gives clients models of their own, else accuracy.
    """
    measure = "personal" if any(map(is_personalised, runs)) else "accuracy"
    groups: dict[tuple[Any, str], list[float | None]] = {}
    for run in runs:
        value = measured(measure, run.history.accuracy, final_scores(run))
        group = (value_of(run.config, setting), run.config.title)
        groups.setdefault(group, []).append(value)
    name = setting.rpartition(".")[2]
    return [
        CellResult(f"{name}={value}", title, tuple(groups[value, title]), None, 0.0)
        for value, title in sorted(groups, key=lambda group: _rank(group[0]))
    ]


def _rank(value: Any) -> tuple[bool, Any]:
    """Numbers by size, then words in alphabetical order."""
    return (False, value) if isinstance(value, int | float) else (True, str(value))


def value_of(config: Config, setting: str) -> Any:
    """The value of a setting in a run; the default for parameters that were left alone."""
    at: Any = config.model_dump(mode="json")
    at["method"] |= {spec.name: _parameters(spec, setting) for spec in config.method_specs}
    for step in setting.split("."):
        if not isinstance(at, dict) or step not in at:
            raise UserError(
                f"--by {setting}: a run of '{config.title}' has no setting '{step}' there; "
                "see its config.toml"
            )
        at = at[step]
    if isinstance(at, dict):
        raise UserError(
            f"--by {setting} is a table of settings; "
            f"name one of them, for example {setting}.{next(iter(at), 'name')}"
        )
    return tuple(at) if isinstance(at, list) else at


def _parameters(spec: Spec, setting: str) -> dict[str, Any]:
    """The parameters of a method in a run, the defaults included.

    To know the defaults of a user's function its code must run, so they are left out if the setting
    is not one of them.
    """
    own, _, parameter = setting.rpartition(".")
    asked = own == f"method.{spec.name}" and parameter not in spec.args
    if is_reference(spec.name) and not asked:
        return dict(spec.args)
    known = parameters(entry(spec.name).make).items()
    return {**{name: p.default for name, p in known if not p.required}, **spec.args}
