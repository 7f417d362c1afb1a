"""The accuracy of a run by round, and how it is read: as the mean of its last evaluations, or as an exponential moving average.

The average runs over evaluations, a_k being the k-th, whatever rounds lie between them: where evaluate.every is not 1, the same
momentum m reaches further back in rounds.

    e_k = m e_{k-1} + (1 - m) a_k

Papers leave open how it starts.

first      e_1 = a_1. The default: the recursion and nothing else, and on a rising curve never the first to reach a target.
debiased   e_0 = 0, and what is read is e_k / (1 - m^k), as TensorBoard and Weights & Biases draw it.

The two differ by less than m^k, so the choice tells only in targets that are reached early.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedloom.core.errors import UserError

Curve = Mapping[int, float]
Start = Literal["first", "debiased"]
STARTS: tuple[Start, Start] = ("first", "debiased")
LAST = 5  # evaluations that are averaged for the accuracy of a run


def final_accuracy(curve: Curve, last: int = LAST) -> float:
    """Accuracy at the end of a run: on skewed clients it swings from round to round, so the last few are averaged."""
    return statistics.fmean(curve[r] for r in sorted(curve)[-last:])


def smoothed(curve: Curve, momentum: float, start: Start = "first") -> dict[int, float]:
    """The exponential moving average by round; momentum 0 is the curve itself.

    >>> smoothed({1: 0.0, 2: 1.0}, 0.5), smoothed({1: 0.0, 2: 1.0}, 0.5, "debiased")
    ({1: 0.0, 2: 0.5}, {1: 0.0, 2: 0.6666666666666667})
    """
    line: dict[int, float] = {}
    mean = curve[min(curve)]
    for done, number in enumerate(sorted(curve)):
        # a + w (e - a) rather than w e + (1 - w) a: where nothing changes, the average stays where it is to the last bit
        line[number] = mean = curve[number] + _weight(momentum, done, start) * (
            mean - curve[number]
        )
    return line


def _weight(momentum: float, done: int, start: Start) -> float:
    """Of the average over so many evaluations beside the next one; the debiased one is an average with a weight that grows."""
    return (
        momentum
        if start == "first"
        else momentum * (1 - momentum**done) / (1 - momentum ** (done + 1))
    )


def first_round(curve: Curve, target: float) -> int | None:
    """The first round that reaches the target; None if none does."""
    return next((r for r in sorted(curve) if curve[r] >= target), None)


def up_to(curve: Curve, number: int) -> dict[int, float]:
    """The evaluations until a round that the run has come to."""
    first, last = min(curve), max(curve)
    if not first <= number <= last:
        evaluated = f"in round {first} only" if first == last else f"from round {first} to {last}"
        raise UserError(
            f"there is no accuracy at round {number}: the run is evaluated {evaluated}; ask for {first} to {last}, or train longer"
        )
    return {r: y for r, y in curve.items() if r <= number}


def evaluations(rounds: int, every: int) -> list[int]:
    """The rounds in which a run is evaluated; the last always is."""
    return sorted({*range(every, rounds + 1, every), rounds})


@dataclass(frozen=True)
class CurveOptions:
    """What is read off a run besides its last accuracy, and how; ema None reads accuracies as the mean of the last few."""

    targets: tuple[float, ...] = ()
    at: tuple[int, ...] = ()
    ema: float | None = None
    start: Start = "first"

    def line(self, curve: Curve) -> dict[int, float]:
        """The curve that targets are read off."""
        return smoothed(curve, self.ema or 0.0, self.start)

    def accuracy(self, curve: Curve) -> float:
        """At the end of a curve."""
        return final_accuracy(curve) if self.ema is None else final_accuracy(self.line(curve), 1)

    def at_rounds(self, curve: Curve) -> list[float]:
        """The accuracies at the rounds that are asked for."""
        return [self.accuracy(up_to(curve, number)) for number in self.at]

    def reached(self, curve: Curve) -> list[int | None]:
        """The first rounds that reach the targets."""
        line = self.line(curve)
        return [first_round(line, target) for target in self.targets]

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        smoothing = None if self.ema is None else {"momentum": self.ema, "start": self.start}
        return {"ema": smoothing, "targets": list(self.targets), "at": list(self.at)}


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean over seeds, None if one of them has no value."""
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
