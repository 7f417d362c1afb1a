"""Totals that are added up round by round are those of the whole history."""

from dataclasses import replace

import pytest

from fedloom.metrics.curve import first_round
from fedloom.metrics.history import History
from fedloom.metrics.records import RoundRecord
from fedloom.metrics.totals import RunTotals

ROUND = RoundRecord(1, (3, 5), {}, 0.7, 10, bytes_up=40, bytes_down=60, seconds=0.5)
HISTORY = History(
    [
        ROUND,
        replace(ROUND, round=2, rejected={3: "no reply"}, accuracy=0.4, evaluation_seconds=0.25),
        replace(ROUND, round=3, bytes_up=41, accuracy=0.6, evaluation_seconds=0.25),
        replace(ROUND, round=4, rejected={3: "no reply", 5: "not finite"}, accuracy=0.5),
        replace(ROUND, round=5),
    ]
)


@pytest.mark.parametrize("target", [None, 0.0, 0.4, 0.55, 0.6, 0.9])
def test_totals_are_those_of_the_history(target: float | None) -> None:
    totals = RunTotals.of(HISTORY, target)
    assert totals.bytes_up == HISTORY.total("bytes_up") == 201
    assert totals.bytes_down == HISTORY.total("bytes_down")
    assert totals.seconds == HISTORY.total("seconds") + HISTORY.total("evaluation_seconds") == 3.0
    assert totals.rejected == 3
    assert totals.last_evaluated is HISTORY[3]
    wanted = None if target is None else first_round(HISTORY.accuracy, target)
    assert totals.rounds_to_target == wanted


def test_a_resumed_run_adds_to_the_totals_of_its_first_part() -> None:
    totals = RunTotals.of(HISTORY[:2], 0.5)
    for record in HISTORY[2:]:
        totals = totals.plus(record)
    assert totals == RunTotals.of(HISTORY, 0.5)
