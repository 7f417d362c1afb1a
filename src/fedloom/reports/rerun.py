"""The command that repeats a run, from its settings.

A command is offered only if reading it gives the settings of the run again, exactly.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.spec import literal
from fedloom.experiment.stored_run import StoredRun
from fedloom.reports.by_method import FREE, flattened
from fedloom.settings.config import DEFAULTS, Config, load
from fedloom.settings.overrides import assignment, overlay

# Settings with a name and arguments, and the option for each.
SPECS = {"method": "--method", "model": "--model", "data.partition": "--partition", "sample": ""}
Changes = dict[str, str]  # the text of each setting that is not the default, by its dotted name


def run_command(config: Config) -> str | None:
    """The command of one run; None if its settings cannot be written on a command line."""
    changes = _changes(config)
    if changes is None:
        return None
    return _written("fedloom run", changes)


def compare_command(rows: Mapping[str, Sequence[StoredRun]]) -> str | None:
    """One command for all runs, if they differ in method and seed alone; else None."""
    every = [_changes(run.config) for runs in rows.values() for run in runs]
    seeds = {tuple(run.config.seed for run in runs) for runs in rows.values()}
    if None in every or len(seeds) > 1:
        return None
    (numbers,) = seeds
    known = [changes for changes in every if changes is not None]
    others = [{k: v for k, v in c.items() if k not in ("method", "seed")} for c in known]
    if numbers != tuple(range(numbers[0], numbers[0] + len(numbers))):
        return None
    if any(other != others[0] for other in others):
        return None
    methods = ",".join(dict.fromkeys(c.get("method", DEFAULTS["method"]["name"]) for c in known))
    seed = {"seed": str(numbers[0])} if numbers[0] else {}
    command = f"fedloom compare --methods {shlex.quote(methods)} --seeds {len(numbers)}"
    return _written(command, {**others[0], **seed})


def _written(command: str, changes: Changes) -> str:
    words = []
    for name, value in changes.items():
        option = {**SPECS, "seed": "--seed", "rounds": "--rounds"}.get(name)
        words += [option, value] if option else ["--set", f"{name}={value}"]
    return " ".join([command, *map(shlex.quote, words)])


def _changes(config: Config) -> Changes | None:
    """The settings that are not the default; None if they would be read as something else."""
    kept = config.model_dump(mode="json", exclude=set(FREE) - {"seed"})
    changes: Changes = {}
    for name in SPECS:
        text = _spec_text(config, name)
        if text != _spec_text(load({}), name):
            changes[name] = text
        _remove(kept, name)
    defaults = flattened(DEFAULTS)
    for name, value in flattened(kept).items():
        if value != defaults.get(name):
            changes[name] = _value_text(value)
    return changes if _read(changes) == _essence(config) else None


def _spec_text(config: Config, name: str) -> str:
    if name == "method":
        return "+".join(map(str, config.method_specs))
    return str(config.data.partition if name == "data.partition" else getattr(config, name))


def _value_text(value: Any) -> str:
    """Text that the command line reads as this value."""
    text = "none" if value is None else str(value)
    return text if literal(text) == value else repr(value)


def _remove(table: dict[str, Any], path: str) -> None:
    *above, last = path.split(".")
    for name in above:
        table = table[name]
    del table[last]


def _read(changes: Changes) -> dict[str, Any] | None:
    """The settings that a command with these changes has."""
    try:
        given = [assignment(f"{name}={value}") for name, value in changes.items()]
        return _essence(load(overlay({}, given, DEFAULTS)))
    except UserError:
        return None


def _essence(config: Config) -> dict[str, Any]:
    """All that a result depends on. Methods as specs, since a name may hold arguments or not."""
    kept = config.model_dump(mode="json", exclude={*FREE - {"seed"}, "method"})
    return {**kept, "method": [(spec.name, dict(spec.args)) for spec in config.method_specs]}
