"""The metrics of each task by name, and user-defined functions as metrics.

A metric is a function of (predictions, targets). Predictions are probabilities of the classes,
labels or tokens, or the predicted values; targets are as the data have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedloom.core import user_code
from fedloom.core.errors import UserError, unknown_name
from fedloom.core.evaluate import Evaluation, MetricFunction
from fedloom.metrics import of_classes, of_labels, of_values
from fedloom.metrics.score import SCORES


@dataclass(frozen=True)
class Metric:
    """A metric of a model on test data.

    function         of predictions and targets; None if the totals of an evaluation are enough
    of_totals        the function of an evaluation's totals, if they are enough
    lower_is_better  decides which clients are the worst tenth
    """

    name: str
    function: MetricFunction | None = None
    of_totals: Callable[[Evaluation], float] | None = None
    lower_is_better: bool = False

    def value(self, evaluation: Evaluation) -> float:
        """Its value in an evaluation whose metrics have been computed; NaN where undefined."""
        if self.of_totals is not None:
            return self.of_totals(evaluation) if evaluation.units else math.nan
        return evaluation.metrics[self.name]


def _share_right(evaluation: Evaluation) -> float:
    return evaluation.counts.accuracy


def _perplexity(evaluation: Evaluation) -> float:
    loss = evaluation.counts.loss if evaluation.token_loss is None else evaluation.token_loss
    return math.exp(loss) if loss < 700 else math.inf  # exp(710) is no float


_OF_TASK: Mapping[str, Sequence[Metric]] = MappingProxyType(
    {
        "classification": (
            Metric("auroc", of_classes.auroc),
            Metric("macro_f1", of_classes.macro_f1),
            Metric("balanced_accuracy", of_classes.balanced_accuracy),
            Metric("calibration_error", of_classes.calibration_error, lower_is_better=True),
        ),
        "multilabel": (
            Metric("auroc", of_labels.auroc),
            Metric("macro_f1", of_labels.macro_f1),
            Metric("label_accuracy", of_totals=_share_right),
        ),
        "regression": (
            Metric("mae", of_values.mae, lower_is_better=True),
            Metric("rmse", of_values.rmse, lower_is_better=True),
            Metric("r2", of_values.r2),
        ),
        "next-token": (
            Metric("token_accuracy", of_totals=_share_right),
            Metric("perplexity", of_totals=_perplexity, lower_is_better=True),
        ),
    }
)


def metrics_of(task: str) -> dict[str, Metric]:
    """The metrics of a task that have a name."""
    return {metric.name: metric for metric in _OF_TASK[task]}


def chosen_metrics(
    task: str, names: Sequence[str] | None, values: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Metric]:
    """The metrics that settings ask for, by name, and the one that is the score of the task.

    names: None for the default, which is none for classification and all for other tasks; err=mae
    reports mae as err. values: functions that were passed as Python objects. Raises UserError for
    an unknown name, for a name given twice, and for a user's name that is built in.
    """
    known = metrics_of(task)
    if names is None:
        names = [] if task == "classification" else list(known)
    chosen: dict[str, Metric] = {}
    for name in names:
        metric = known.get(name)
        if metric is None:
            metric = _renamed(name, known) or _of_user(name, values, known)
            _check_not_built_in(metric.name, task, known)
        if metric.name in chosen:
            raise UserError(f"evaluate.metrics has '{metric.name}' twice; give it once")
        chosen[metric.name] = metric
    score = known.get(SCORES[task].metric)
    return chosen if score is None else {**chosen, score.name: score}


def _renamed(name: str, known: Mapping[str, Metric]) -> Metric | None:
    """The metric of a task under another name, if this is written NAME=METRIC."""
    own, equals, metric = name.partition("=")
    if equals and not own.strip():
        raise UserError(
            f"metric '{name}' has no name before the =; write NAME={metric}, or {metric}"
        )
    return replace(known[metric], name=own) if metric in known else None


def _check_not_built_in(name: str, task: str, known: Mapping[str, Metric]) -> None:
    if name in (*known, SCORES[task].metric):
        raise UserError(
            f"metric '{name}' is built in for {task}, and a metric of your own has that name; "
            f"give yours another one, such as own_{name}"
        )


def _of_user(name: str, values: Mapping[str, Any], known: Mapping[str, Metric]) -> Metric:
    """A user-defined function as a metric with the name of the function."""
    if name in values:
        function = values[name]
    elif user_code.is_reference(name):
        function = user_code.load("metrics", name)
    else:
        raise unknown_name("metric", name, [*known, "file.py:function"])
    short = user_code.short_reference(name).rpartition(":")[2]
    lower = getattr(function, "lower_is_better", False)
    return Metric(short, _on_copies(function), lower_is_better=lower)


def _on_copies(function: MetricFunction) -> MetricFunction:
    """The user's function on copies, which it may change."""
    return lambda predictions, targets: function(predictions.clone(), targets.clone())
