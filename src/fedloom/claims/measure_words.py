"""What a figure of a result file is, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fedloom.claims.suites import Target
from fedloom.core.spec import parse
from fedloom.metrics.curve import LAST
from fedloom.metrics.measures import MEASURES

ANALYSED = {
    "eigen.values.0": "largest eigenvalue of the Hessian of the final model",
    "trace.hutch++.value": "trace of the Hessian of the final model",
}
SCORES = {
    "mean_class_recall": "recall, mean over a client's classes,",
    "label_weighted_accuracy": "accuracy, weighted by a client's labels,",
}
CLIENTS = {"mean": "mean over clients", "worst_tenth": "mean over the worst tenth of clients"}
Arguments = Mapping[str, Any]


def measure_in_words(measure: str) -> str:
    """A measure such as `ema(of=0.5)`; other texts, which are words already, stay as they are.

    >>> measure_in_words("accuracy(last=15)")
    'accuracy in %, mean of the last 15 evaluations'
    >>> measure_in_words("rounds(to=0.35, ema=0.9)")
    'rounds to 35 % on the moving average of the accuracy (0.9 per round)'
    """
    if measure in ANALYSED or measure.partition("(")[0] not in MEASURES:
        return ANALYSED.get(measure, measure)
    (spec,) = parse(measure)
    return WORDS[spec.name](spec.args)


def target_in_words(target: Target) -> str:
    """Rounds to an accuracy that depends on another row.

    >>> target_in_words(Target("target4", "fedavg", "ema", plus=1.0, ema=0.9))
    'rounds until the moving average of the accuracy (0.9 per round) reaches what fedavg has \
(moving average of the accuracy in %, at the end) plus 1'
    """
    times = f"{target.times:g} times " if target.times != 1 else ""
    plus = f" plus {target.plus:g}" if target.plus else ""
    goal = f"{times}what {target.of} has ({measure_in_words(target.measure)}){plus}"
    return f"rounds until the {_curve(target.ema)} reaches {goal}"


def _curve(momentum: float) -> str:
    average = f"moving average of the accuracy ({momentum:g} per round)"
    return average if momentum else "accuracy"


def _when(arguments: Arguments) -> str:
    if "at" in arguments:
        return f"after round {arguments['at']}"
    share = float(arguments.get("of", 1))
    return "at the end" if share == 1 else f"after {100 * share:g} % of the rounds"


def _accuracy(arguments: Arguments) -> str:
    last = arguments.get("last", LAST)
    averaged = "the last evaluation" if last == 1 else f"mean of the last {last} evaluations"
    when = _when(arguments)
    return f"accuracy in %, {averaged}{'' if when == 'at the end' else f' {when}'}"


def _personal(arguments: Arguments) -> str:
    score = SCORES[arguments.get("score", "mean_class_recall")]
    return f"{score} of the clients' final models in %, {CLIENTS[arguments.get('of', 'mean')]}"


WORDS: Mapping[str, Callable[[Arguments], str]] = MappingProxyType(
    {
        "accuracy": _accuracy,
        "ema": lambda given: f"moving average of the accuracy in %, {_when(given)}",
        "rounds": lambda given: (
            f"rounds to {100 * float(given['to']):g} % on the {_curve(float(given.get('ema', 0)))}"
        ),
        "personal": _personal,
        "group": lambda given: (
            f"recall of the clients' final models in % on {given['name']} classes"
        ),
    }
)
