"""Gates: whether the runs of a suite are a fair test, computed from their folders.

The kinds are described in claims/suites.py. A condition is about the mean over the finished seeds.
A gate is met if all its conditions are met, not met if one of them is not, and not known while a
run that it looks at is missing. It holds for the suite's own settings only: if the user has changed
them, or if a claim is run without a suite, nothing says whether the runs are a fair test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fedloom.claims.plan_suite import SuitePlan
from fedloom.claims.suites import suites
from fedloom.core.errors import UserError, unknown_name
from fedloom.experiment.stored_run import StoredRun, read_run
from fedloom.metrics.curve import Curve
from fedloom.metrics.measures import measured
from fedloom.reports.client_scores import client_data, final_scores
from fedloom.runs.folder_layout import CONFIG

Condition = Mapping[str, Any]


@dataclass(frozen=True)
class GateResult:
    """Whether a gate is met, None if that is not known yet, and why in words."""

    met: bool | None
    why: str

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {"met": self.met, "why": self.why}


@dataclass(frozen=True)
class Observed:
    """The finished runs of one row, and the measure of its column."""

    row: str
    runs: Sequence[StoredRun]
    measure: str


def gate_result(plan: SuitePlan) -> GateResult:
    """Whether the finished runs are a fair test according to the suite's gate."""
    if plan.changes:
        changed = ", ".join(plan.changes)
        return GateResult(None, f"these are not the settings of the suite, changed: {changed}")
    if plan.suite.id not in suites():
        return GateResult(None, "no gate says whether that is a fair test")
    return trial_result(plan)


def trial_result(plan: SuitePlan) -> GateResult:
    """Whether the conditions of the gate are met, also with other settings than the suite's."""
    if not plan.suite.gate:
        return GateResult(True, "nothing is asked beyond the scale itself")
    results = [_condition_result(condition, plan) for condition in plan.suite.gate]
    met: bool | None = all(result.met for result in results)
    if not met and not any(result.met is False for result in results):
        met = None
    return GateResult(met, "; ".join(result.why for result in results))


def _condition_result(condition: Condition, plan: SuitePlan) -> GateResult:
    kind = condition["kind"]
    if kind not in KINDS:
        raise unknown_name("kind of gate", kind, KINDS)
    names = [condition[key] for key in ("of", "better", "than") if key in condition]
    observed = [_observed(name, condition, plan) for name in names]
    missing = [each.row for each in observed if not each.runs]
    if missing:
        return GateResult(None, f"{kind}: no finished run of {', '.join(missing)}")
    try:
        return KINDS[kind](condition, *observed)
    except UserError as error:
        return GateResult(None, f"{kind}: {error}")


def _observed(row: str, condition: Condition, plan: SuitePlan) -> Observed:
    cell = plan.cell(row, condition.get("column"))
    if cell is None:
        raise UserError(
            f"the gate of '{plan.suite.id}' looks at row '{row}', which it does not run"
        )
    paths = [run.path for run in cell.cell.runs if (run.path / CONFIG).exists()]
    runs = [run for run in map(read_run, paths) if run.result is not None]
    return Observed(row, runs, condition.get("measure", cell.cell.column.measure))


def score(condition: Condition, row: Observed) -> GateResult:
    """The measure is above a bound."""
    value = statistics.fmean(_measured(row))
    met = value > condition["above"]
    return GateResult(met, f"{row.row} has {value:.2f}, more than {condition['above']:g} needed")


def gain(condition: Condition, better: Observed, than: Observed) -> GateResult:
    """One row gains at least `at_least` over another, on average over the seeds that both have."""
    ours, theirs = _by_seed(better), _by_seed(than)
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return GateResult(None, f"gain: {better.row} and {than.row} share no finished seed")
    value = statistics.fmean(ours[seed] - theirs[seed] for seed in shared)
    met = value >= condition["at_least"]
    asked = f"at least {condition['at_least']:g} needed"
    return GateResult(met, f"{better.row} gains {value:+.2f} over {than.row}, {asked}")


def plateau(condition: Condition, row: Observed) -> GateResult:
    """The measure gains less than a bound over the last share of the rounds."""
    gains = [_late_gain(run, row.measure, condition["last"]) for run in row.runs]
    value = statistics.fmean(gains)
    asked = f"less than {condition['below']:g} needed"
    span = f"over the last {condition['last']:.0%} of the rounds"
    met = value < condition["below"]
    return GateResult(met, f"{row.row} gains {value:+.2f} {span}, {asked}")


def _late_gain(run: StoredRun, measure: str, last: float) -> float:
    curve = run.history.accuracy
    until = math.ceil((1 - last) * max(curve) - 1e-9)
    early = {number: value for number, value in curve.items() if number <= until}
    if not early or len(early) == len(curve):
        raise UserError(
            f"seed {run.config.seed} has too few evaluations in and before these rounds"
        )
    return _value(measure, curve) - _value(measure, early)


def _value(measure: str, curve: Curve) -> float:
    value = measured(measure, curve)
    if value is None:
        raise UserError(f"{measure} has no value; choose a measure of accuracy")
    return value


def train_loss(condition: Condition, row: Observed) -> GateResult:
    """The training loss falls below a bound in some round, the lowest mean over seeds so far."""
    by_round, bound = condition["by_round"], condition["below"]
    if any(len(run.history) < by_round for run in row.runs):
        return GateResult(None, f"train_loss: {row.row} has fewer than {by_round} rounds")
    means = [_mean_loss(row.runs, number) for number in range(by_round)]
    lowest = min(means)
    asked = f"less than {bound:g} needed"
    words = f"{row.row} has training loss {lowest:.3f} by round {by_round}, {asked}"
    return GateResult(lowest < bound, words)


def _mean_loss(runs: Sequence[StoredRun], number: int) -> float:
    losses = [run.history[number].train_loss for run in runs]
    return statistics.fmean(math.inf if loss is None else loss for loss in losses)


def client_size(condition: Condition, row: Observed) -> GateResult:
    """Clients hold at least this number of training samples on average."""
    counts = [client_data(run).counts for run in row.runs]
    value = statistics.fmean(float(c.sum()) / len(c) for c in counts)
    met = value >= condition["at_least"]
    asked = f"at least {condition['at_least']:g} needed"
    return GateResult(met, f"clients hold {value:.0f} samples on average, {asked}")


def _measured(row: Observed) -> list[float]:
    return list(_by_seed(row).values())


def _by_seed(row: Observed) -> dict[int, float]:
    values = {}
    for run in row.runs:
        value = measured(row.measure, run.history.accuracy, final_scores(run))
        if value is None:
            raise UserError(f"{row.measure} has no value in '{run.name}'")
        values[run.config.seed] = value
    return values


KINDS: Mapping[str, Callable[..., GateResult]] = MappingProxyType(
    {
        "score": score,
        "gain": gain,
        "plateau": plateau,
        "train_loss": train_loss,
        "client_size": client_size,
    }
)
