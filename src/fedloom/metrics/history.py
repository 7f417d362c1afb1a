"""The history of a run: the records of its rounds as a sequence, with curves and totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from fedloom.core.errors import UserError
from fedloom.metrics.records import RoundRecord


class History(Sequence[RoundRecord]):
    """The records of all rounds, in order."""

    def __init__(self, records: Sequence[RoundRecord] = ()) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, index: int) -> RoundRecord: ...

    @overload
    def __getitem__(self, index: slice) -> History: ...

    def __getitem__(self, index: int | slice) -> RoundRecord | History:
        found = self._records[index]
        return History(found) if isinstance(found, list) else found

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[RoundRecord]:
        return iter(self._records)

    def __repr__(self) -> str:
        curve = self.accuracy
        last = f", accuracy {curve[max(curve)]:.4f}" if curve else ""
        return f"<History of {len(self)} rounds{last}>"

    @property
    def accuracy(self) -> dict[int, float]:
        """Accuracy of the global model by round, where it was evaluated."""
        return {r.round: r.accuracy for r in self._records if r.accuracy is not None}

    def total(self, name: str) -> float:
        """The sum of a numeric field over the rounds, such as bytes_up or seconds."""
        return sum(getattr(record, name) or 0 for record in self._records)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per round; nested scores become columns with dots."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise UserError(
                "history.to_pandas() needs pandas; install it with: pip install pandas"
            ) from None
        return pandas.json_normalize([record.to_json() for record in self._records])
