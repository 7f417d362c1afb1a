"""Trials of a suite's gate before its runs, on a seed that is not reported: SUITE/gate.json.

A list, in the order of the trials: suite; seed; scale, in words; changed: settings that were tried
instead of the suite's, by their dotted names; gate: the conditions; commit; met; why. A trial that
is repeated with the same settings and conditions takes the place of the earlier one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedloom.claims.gates import GateResult
from fedloom.claims.plan_suite import SuitePlan, suite_settings
from fedloom.core.errors import UserError
from fedloom.reports.by_method import flattened
from fedloom.runs.durable_files import write_durably
from fedloom.settings.config import load

FILE = "gate.json"
Trial = dict[str, Any]


def gate_trial(plan: SuitePlan, result: GateResult, commit: str) -> Trial:
    """What a trial has shown. commit: what its runs were made with."""
    suite = plan.suite
    return {
        "suite": suite.id,
        "seed": suite.gate_seed,
        "scale": suite.scale,
        "changed": _changed(plan),
        "gate": [dict(condition) for condition in suite.gate],
        "commit": commit,
        **result.describe(),
    }


def _changed(plan: SuitePlan) -> dict[str, Any]:
    """The settings of the first run that are not those of the suite."""
    as_fixed = load(next(suite_settings(plan.suite, "small"))[-1])
    ours, fixed = (
        flattened(config.model_dump(mode="json", exclude={"seed"}))
        for config in (plan.cells[0].cell.runs[0].config, as_fixed)
    )
    return {name: ours.get(name) for name in {**fixed, **ours} if ours.get(name) != fixed.get(name)}


def record_trial(trial: Trial, folder: Path) -> Path:
    """Add a trial to the file of its suite below a folder of result files; its path."""
    file = folder / trial["suite"] / FILE
    same = ("scale", "changed", "gate", "seed")
    earlier = [t for t in read_trials(file) if any(t.get(key) != trial[key] for key in same)]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, (json.dumps([*earlier, trial], indent=1) + "\n").encode())
    return file


def read_trials(file: Path) -> list[Trial]:
    """The trials in a file; none if there is no such file."""
    if not file.exists():
        return []
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"'{file}' is not valid JSON: {error}; restore it from a copy") from None
    if not isinstance(found, list):
        raise UserError(f"'{file}' is not a list of trials; restore it from a copy")
    return found
