"""The effect of settings: runs arranged by the value of one, and the rows of a sweep."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.spec import Spec, parameters
from fedloom.core.user_code import is_reference
from fedloom.experiment.stored_run import StoredRun, gave_up
from fedloom.methods.registry import entry
from fedloom.metrics.curve import CurveOptions, mean_of_all
from fedloom.metrics.measures import final_score
from fedloom.metrics.score import ACCURACY, SCORES
from fedloom.reports.client_scores import final_scores, is_personalised
from fedloom.reports.comparison import Comparison, compare_runs
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.paper_table import CellResult
from fedloom.settings.config import Config
from fedloom.settings.search_space import Combination, label


def by_setting(runs: Sequence[StoredRun], setting: str) -> list[CellResult]:
    """Figures with the values of a setting (such as method.fedafa.lam) as rows, methods as columns.

    The figure is the clients' score if any method gives clients models of their own, else accuracy.
    """
    personal, score = any(map(is_personalised, runs)), SCORES[runs[0].config.task]
    groups: dict[tuple[Any, str], list[float | None]] = {}
    for run in runs:
        value = final_score(score, run.history.accuracy, final_scores(run), personal)
        group = (value_of(run.config, setting), run.config.title)
        groups.setdefault(group, []).append(value)
    name = setting.rpartition(".")[2]
    return [
        CellResult(f"{name}={value}", title, tuple(groups[value, title]), None, 0.0)
        for value, title in sorted(groups, key=lambda group: rank(group[0]))
    ]


def rank(value: Any) -> tuple[bool, Any]:
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


@dataclass(frozen=True)
class SweepPoint:
    """A combination of settings and its score per seed; None where it is unknown.

    In percent, where the score is a share.
    """

    combination: Combination
    scores: tuple[float | None, ...]

    @property
    def mean(self) -> float:
        """Over seeds; NaN if one is unknown."""
        value = mean_of_all(self.scores)
        return math.nan if value is None else value

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; 0 for one seed."""
        known = [score for score in self.scores if score is not None]
        return statistics.stdev(known) if len(known) > 1 else 0.0


def compare_sweep(
    runs: Mapping[str, Sequence[StoredRun]],
    settings: Collection[str],
    options: CurveOptions | None = None,
) -> Comparison:
    """The combinations of a sweep as rows. settings: those that were varied.

    A run that gave up has the accuracy of its last good round, and a note.
    """
    comparison = compare_runs(runs, options, settings)
    lost = [
        f"{name}, seed {run.config.seed}: gave up after {len(run.history)} rounds, since too many "
        "of them were skipped; its accuracy is that of the last model that was accepted"
        for name, group in runs.items()
        for run in group
        if run.path is not None and gave_up(run.path)
    ]
    return replace(comparison, notes=(*comparison.notes, *lost))


def sweep_points(
    combinations: Sequence[Combination], comparison: Comparison
) -> tuple[list[SweepPoint], str]:
    """The scores of the combinations, and what kind of score it is, in words.

    It is the recall of the clients' own models if any combination makes them, else accuracy.
    """
    personal = _is_personal(comparison)
    points = [
        SweepPoint(combination, _scores(comparison[label(combination)], personal))
        for combination in combinations
    ]
    return points, score_name(comparison)


def score_name(comparison: Comparison) -> str:
    """What rows are scored by, in words."""
    held_out = any(run.config.data.validation for run in comparison.all_runs)
    where = "held-out samples" if held_out else "test data"
    score = comparison.score
    personal = "personal recall" if score is ACCURACY else f"personal {score.name}"
    return f"{personal if _is_personal(comparison) else score.name} on {where}"


def _is_personal(comparison: Comparison) -> bool:
    return any(row.personalised for row in comparison.rows)


def _scores(row: ComparisonRow, personal: bool) -> tuple[float | None, ...]:
    scale = row.score.scale
    if not personal:
        return tuple(scale * accuracy for accuracy in row.accuracies)
    if not row.client_scores:
        return (None,) * len(row.accuracies)
    values = row.client_values(row.score.clients)
    return tuple(None if value is None else scale * value for value in values)


def best_of(points: Sequence[SweepPoint]) -> SweepPoint | None:
    """The point with the highest mean over seeds, the first of equals; None if none has one."""
    known = [point for point in points if not math.isnan(point.mean)]
    return max(known, key=lambda point: point.mean, default=None)
