"""Totals of a run, added up round by round.

A run with a folder has its history there. Training keeps only these totals, so that its memory does
not grow with the number of rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

from fedloom.metrics.records import RoundRecord


@dataclass(frozen=True)
class RunTotals:
    """What the result of a run needs to know of its rounds.

    target            the accuracy that is looked for; None if none is
    rounds_to_target  first round that reached it; None if none did so far
    last_evaluated    the record of the last round in which the global model was evaluated
    skipped           rounds that were not used; last_skipped: why the last of them was not
    seconds           of training and evaluation together
    """

    target: float | None = None
    rounds_to_target: int | None = None
    last_evaluated: RoundRecord | None = None
    rejected: int = 0
    skipped: int = 0
    last_skipped: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, records: Iterable[RoundRecord], target: float | None = None) -> RunTotals:
        """The totals of these rounds, which must be in order."""
        return reduce(cls.plus, records, cls(target))

    def plus(self, record: RoundRecord) -> RunTotals:
        """The totals with the next round."""
        evaluated = record.accuracy is not None
        return replace(
            self,
            rounds_to_target=record.round if self._reaches(record) else self.rounds_to_target,
            last_evaluated=record if evaluated else self.last_evaluated,
            rejected=self.rejected + len(record.rejected),
            skipped=self.skipped + (record.skipped is not None),
            last_skipped=record.skipped or self.last_skipped,
            bytes_up=self.bytes_up + record.bytes_up,
            bytes_down=self.bytes_down + record.bytes_down,
            seconds=self.seconds + record.seconds + (record.evaluation_seconds or 0.0),
        )

    def _reaches(self, record: RoundRecord) -> bool:
        """Whether this is the first round that reaches the target."""
        if self.target is None or self.rounds_to_target is not None or record.accuracy is None:
            return False
        return record.accuracy >= self.target
