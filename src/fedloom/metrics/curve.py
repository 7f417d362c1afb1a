"""Accuracy by round, and how figures are taken from it.

The accuracy of a run is the mean of its last evaluations, or an exponential moving average over all
evaluations. With a_k the k-th evaluation, d rounds after the one before, and momentum m per round:

    e_k = m^d e_{k-1} + (1 - m^d) a_k

An average thus reaches back over the same number of rounds, however often a run is evaluated.

Papers do not say how the average starts, so both ways are offered:

first      e_1 = a_1. The default: nothing but the recursion. On a rising curve it never reaches a
           target earlier than the curve itself.
debiased   e_0 = 0 in round 0, and the value in round t is e_k / (1 - m^t), as TensorBoard and
           Weights & Biases draw it.

The two differ by less than m^t, so the choice matters only for targets that are reached early.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedloom.core.errors import UserError

Curve = Mapping[int, float]
Start = Literal["first", "debiased"]
STARTS: tuple[Start, Start] = ("first", "debiased")
LAST = 5  # evaluations that are averaged for the accuracy of a run


def final_accuracy(curve: Curve, last: int = LAST) -> float:
    """Mean of the last evaluations, since on skewed clients accuracy swings from round to round."""
    return statistics.fmean(curve[r] for r in sorted(curve)[-last:])


def averaged_evaluations(counts: Iterable[int]) -> str:
    """What `final_accuracy` is, of runs with these numbers of evaluations.

    >>> averaged_evaluations([20, 30]), averaged_evaluations([2, 2]), averaged_evaluations([1])
    ('mean of the last 5 evaluations', 'mean of the last 2 evaluations', 'the last evaluation')
    >>> averaged_evaluations([2, 3])
    'mean of the last 5 evaluations, or of all if there are fewer'
    """
    averaged = {min(LAST, count) for count in counts}
    if averaged == {1}:
        return "the last evaluation"
    if len(averaged) == 1:
        return f"mean of the last {averaged.pop()} evaluations"
    return f"mean of the last {LAST} evaluations, or of all if there are fewer"


def smoothed(curve: Curve, momentum: float, start: Start = "first") -> dict[int, float]:
    """The exponential moving average by round; momentum 0 is the curve itself.

    >>> smoothed({1: 0.0, 2: 1.0}, 0.5), smoothed({1: 0.0, 2: 1.0}, 0.5, "debiased")
    ({1: 0.0, 2: 0.5}, {1: 0.0, 2: 0.6666666666666667})
    >>> smoothed({2: 0.0, 4: 1.0}, 0.5)
    {2: 0.0, 4: 0.75}
    """
    averages: dict[int, float] = {}
    before = 0
    for number in sorted(curve):
        # a + w (e - a) rather than w e + (1 - w) a: a constant curve stays constant to the last bit
        mean = averages.get(before, curve[number])
        weight = _weight(momentum, before, number, start)
        averages[number] = curve[number] + weight * (mean - curve[number])
        before = number
    return averages


def _weight(momentum: float, before: int, now: int, start: Start) -> float:
    """Of the average in round `before` against the evaluation in round `now`."""
    weight = momentum ** (now - before)
    if start == "first":
        return weight
    return weight * (1 - momentum**before) / (1 - momentum**now)


def first_round(curve: Curve, target: float) -> int | None:
    """The first round that reaches the target; None if none does."""
    return next((r for r in sorted(curve) if curve[r] >= target), None)


def up_to(curve: Curve, number: int) -> dict[int, float]:
    """The evaluations up to a round; raises if the curve does not reach it or begins later."""
    first, last = min(curve), max(curve)
    if not first <= number <= last:
        evaluated = f"in round {first} only" if first == last else f"from round {first} to {last}"
        raise UserError(
            f"there is no accuracy at round {number}: the run is evaluated {evaluated}; "
            f"ask for {first} to {last}, or train longer"
        )
    return {r: y for r, y in curve.items() if r <= number}


def evaluations(rounds: int, every: int) -> list[int]:
    """The rounds in which a run is evaluated; the last one always is."""
    return sorted({*range(every, rounds + 1, every), rounds})


@dataclass(frozen=True)
class CurveOptions:
    """How figures are taken from accuracy curves.

    targets: accuracies whose first round is wanted. at: rounds whose accuracy is wanted. ema: the
    momentum of the moving average; None takes the mean of the last evaluations instead. target_of:
    the row whose accuracy is the target, where none was asked for.
    """

    targets: tuple[float, ...] = ()
    at: tuple[int, ...] = ()
    ema: float | None = None
    start: Start = "first"
    target_of: str = ""

    def smoothed(self, curve: Curve) -> dict[int, float]:
        """The curve in which targets are looked for."""
        return smoothed(curve, self.ema or 0.0, self.start)

    def accuracy(self, curve: Curve) -> float:
        """At the end of a curve."""
        if self.ema is None:
            return final_accuracy(curve)
        return final_accuracy(self.smoothed(curve), 1)

    def at_rounds(self, curve: Curve) -> list[float]:
        """The accuracies at the rounds `at`."""
        return [self.accuracy(up_to(curve, number)) for number in self.at]

    def reached(self, curve: Curve) -> list[int | None]:
        """The first rounds that reach the targets."""
        averages = self.smoothed(curve)
        return [first_round(averages, target) for target in self.targets]

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        smoothing = None if self.ema is None else {"momentum": self.ema, "start": self.start}
        return {"ema": smoothing, "targets": list(self.targets), "at": list(self.at)}


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean over seeds; None if one of them has no value."""
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def rounds_to(each: Sequence[float | None], rounds: int) -> str:
    """Rounds to a target accuracy as text: the mean over seeds if all of them reached it.

    Otherwise the length of the runs with a plus, and how many seeds reached it.

    >>> rounds_to([3, 8], 20), rounds_to([None, None], 20), rounds_to([3, None], 20)
    ('5.5', '20+', '20+ (1 of 2)')
    """
    reached = [r for r in each if r is not None]
    if len(reached) == len(each):
        return f"{round(sum(reached) / len(reached), 1):g}"
    return f"{rounds}+ ({len(reached)} of {len(each)})" if reached else f"{rounds}+"
