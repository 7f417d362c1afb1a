"""What a table prints of a run, read off its accuracy by round, in the units of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated

from fedloom.core.words import Param, call
from fedloom.methods.registry import parse
from fedloom.study.compare import settled

Curve = Mapping[int, float]


def accuracy(
    curve: Curve, of: Annotated[float, Param("share of the run after which it is read; 1 is its end", above=0, high=1)] = 1.0
) -> float:
    """Accuracy in percent, the last evaluations up to then averaged."""
    until = max(min(curve), math.ceil(of * max(curve)))
    return 100 * settled({r: y for r, y in curve.items() if r <= until})


def rounds(curve: Curve, to: Annotated[float, Param("accuracy to reach", above=0, below=1)]) -> float | None:
    """The first round whose accuracy reaches the target; None if none does."""
    return next((float(r) for r in sorted(curve) if curve[r] >= to), None)


MEASURES: Mapping[str, Callable[..., float | None]] = MappingProxyType({"accuracy": accuracy, "rounds": rounds})


def is_measure(text: str) -> bool:
    """Whether it is read off a run's accuracies."""
    return parse(text)[0].name in MEASURES


def measured(text: str, curve: Curve) -> float | None:
    """The figure that a word such as `accuracy(of=0.5)` names."""
    (word,) = parse(text)
    figure: float | None = call("measure", word.name, MEASURES[word.name], word.args, curve=curve)
    return figure
