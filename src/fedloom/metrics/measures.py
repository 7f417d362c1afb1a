"""What a table prints of a run, in the units of the papers.

It is read off the accuracy by round (metrics/curve.py), or off what the clients end with (reports/client_scores.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.spec import Param, call, parameters, parse
from fedloom.metrics import curve as reading
from fedloom.metrics.curve import LAST, Curve, final_accuracy, first_round, smoothed, up_to
from fedloom.metrics.records import BLANK, Own

Of = Annotated[
    float, Param("share of the run after which it is read; 1 is its end", above=0, high=1)
]
At = Annotated[int | None, Param("round after which it is read, instead of a share", low=1)]
Momentum = Annotated[
    float,
    Param("momentum of the moving average over evaluations; 0 is each by itself", low=0, below=1),
]
Start = Annotated[
    reading.Start, Param("the first evaluation as it is, or from 0 and divided by 1 - momentum^k")
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
    """The first round whose accuracy, or moving average of it, reaches the target; None if none does."""
    return first_round(smoothed(curve, ema, start), to)


def personal(
    own: Own | None,
    score: Annotated[
        Literal["recall", "weighted"],
        Param("mean recall over a client's classes, or accuracy weighted by its labels"),
    ] = "recall",
    of: Annotated[Literal["mean", "std", "worst_tenth"], Param("over clients")] = "mean",
) -> float:
    """A score in percent of the models that the clients end with, over clients."""
    return 100 * float(_scored(own)[score][of])


def group(
    own: Own | None,
    name: Annotated[Literal["head", "middle", "tail"], Param("third of the classes")],
) -> float:
    """Recall in percent of the models that the clients end with, over a third of the classes by how frequent they are."""
    groups = _scored(own)["groups"]
    if name not in groups:
        raise UserError(
            f"there is no '{name}': the classes are equally frequent in training; raise data.longtail above 1"
        )
    return 100 * float(groups[name])


def _scored(own: Own | None) -> Own:
    if own is None:
        raise UserError("the clients' own models are not scored; set evaluate.personal=true")
    return own


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
    """Whether it is read off a run."""
    return parse(text)[0].name in MEASURES


def counts_rounds(text: str) -> bool:
    """Whether the figure is a number of rounds, and not a percentage."""
    return parse(text)[0].name == "rounds"


def measured(text: str, curve: Curve, own: Own | None = None) -> float | None:
    """The figure that a word such as `ema(at=500)`, `rounds(to=0.47, ema=0.9)` or `personal(score=weighted)` names."""
    word, *more = parse(text)
    if more or word.name not in MEASURES:
        raise unknown_name("measure", text, MEASURES)
    offered, function = {"curve": curve, "own": own}, MEASURES[word.name]
    given = {name: value for name, value in offered.items() if name in parameters(function)}
    figure: float | None = call("measure", word.name, function, word.args, **given)
    return figure


def check(text: str, rounds: int, every: int, own: Own | None = BLANK) -> None:
    """Refuse, before a run of so many rounds begins, what could not be read off it at its end."""
    measured(text, dict.fromkeys(reading.evaluations(rounds, every), 0.0), own)
