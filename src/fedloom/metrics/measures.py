"""The figures that a paper's table prints of a run, in the papers' units.

They are computed from the accuracy by round, or from the scores of the clients' final models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.spec import Param, call, parameters, parse
from fedloom.metrics import curve as curves
from fedloom.metrics.client_scores import EMPTY_SCORES, ClientScores
from fedloom.metrics.curve import LAST, Curve, final_accuracy, first_round, smoothed, up_to
from fedloom.metrics.score import Score

Of = Annotated[
    float, Param("share of the run after which it is read; 1 is its end", above=0, high=1)
]
At = Annotated[int | None, Param("round after which it is read, instead of a share", low=1)]
Momentum = Annotated[
    float,
    Param(
        "momentum of the moving average, per round; 0 is each evaluation by itself", low=0, below=1
    ),
]
Start = Annotated[
    curves.Start,
    Param("the first evaluation as it is, or from 0 and divided by 1 - momentum^round"),
]


def accuracy(
    curve: Curve,
    of: Of = 1.0,
    at: At = None,
    last: Annotated[
        int, Param("evaluations up to then that are averaged; 1 is the last by itself", low=1)
    ] = LAST,
) -> float:
    """Accuracy in percent, the last evaluations up to then averaged."""
    return 100 * final_accuracy(_until(curve, of, at), last)


def ema(
    curve: Curve, of: Of = 1.0, at: At = None, momentum: Momentum = 0.9, start: Start = "first"
) -> float:
    """Accuracy in percent, the exponential moving average over all evaluations up to then."""
    return 100 * final_accuracy(smoothed(_until(curve, of, at), momentum, start), 1)


def rounds(
    curve: Curve,
    to: Annotated[float, Param("accuracy to reach", above=0, below=1)],
    ema: Momentum = 0.0,
    start: Start = "first",
) -> float | None:
    """The first round whose accuracy, or its moving average, reaches the target; else None."""
    return first_round(smoothed(curve, ema, start), to)


def personal(
    scores: ClientScores | None,
    score: Annotated[
        Literal["mean_class_recall", "label_weighted_accuracy"],
        Param("mean recall over a client's classes, or accuracy weighted by its labels"),
    ] = "mean_class_recall",
    of: Annotated[Literal["mean", "std", "worst_tenth"], Param("over clients")] = "mean",
) -> float:
    """A score over clients, in percent, of the models that the clients end with."""
    return 100 * float(getattr(getattr(_present(scores), score), of))


def group(
    scores: ClientScores | None,
    name: Annotated[Literal["head", "middle", "tail"], Param("third of the classes")],
) -> float:
    """Recall in percent, over a third of the classes, of the models that the clients end with."""
    groups = _present(scores).group_recall
    if name not in groups:
        raise UserError(
            f"there is no group '{name}': all classes are equally frequent in training; "
            "raise data.longtail above 1"
        )
    return 100 * float(groups[name])


def _present(scores: ClientScores | None) -> ClientScores:
    if scores is None:
        raise UserError("the clients' own models are not scored; set evaluate.personal=true")
    return scores


def _until(curve: Curve, of: float, at: int | None) -> dict[int, float]:
    if at is None:
        return up_to(
            curve, max(min(curve), math.ceil(of * max(curve) - 1e-9))
        )  # 0.55 * 100 is a little above 55
    if of != 1:
        raise UserError(f"of={of} and at={at} name two rounds; give one of them")
    return up_to(curve, at)


MEASURES: Mapping[str, Callable[..., float | None]] = MappingProxyType(
    {"accuracy": accuracy, "ema": ema, "rounds": rounds, "personal": personal, "group": group}
)


def is_measure(text: str) -> bool:
    """Whether the text names a measure of a run."""
    return parse(text)[0].name in MEASURES


def counts_rounds(text: str) -> bool:
    """Whether the measure is a number of rounds rather than a percentage."""
    return parse(text)[0].name == "rounds"


def measured(text: str, curve: Curve, scores: ClientScores | None = None) -> float | None:
    """The value of a measure such as `ema(at=500)`, `rounds(to=0.47, ema=0.9)` or `personal`.

    curve: accuracy by round. scores: of the models that the clients end with.
    """
    spec, *more = parse(text)
    if more or spec.name not in MEASURES:
        raise unknown_name("measure", text, MEASURES)
    offered, function = {"curve": curve, "scores": scores}, MEASURES[spec.name]
    given = {name: value for name, value in offered.items() if name in parameters(function)}
    value: float | None = call("measure", spec.name, function, spec.args, **given)
    return value


def final_score(
    score: Score, curve: Curve, scores: ClientScores | None, personal: bool
) -> float | None:
    """The score of a task at the end of a run, as tables write it; None if it is not known.

    personal: of the models that the clients end with, the mean over clients; of the global model,
    where clients have no others and no test samples of their own.
    """
    if personal:
        known = _present(scores)
        if (spread := known.spread_of(score.clients)) is not None:
            return score.scale * spread.mean
        if known.unscored:
            return None
    return score.scale * final_accuracy(curve, LAST)


def check(text: str, rounds: int, every: int, scores: ClientScores | None = EMPTY_SCORES) -> None:
    """Raise, before a run begins, if the measure could not be taken at its end."""
    measured(text, dict.fromkeys(curves.evaluations(rounds, every), 0.0), scores)
