"""Tells the user about clients whose replies were not used, once and at the end."""

from __future__ import annotations

from collections.abc import Callable

from fedloom.experiment.callbacks import Callback
from fedloom.metrics.records import RoundRecord, RunResult


class RejectionNotes(Callback):
    """Shows the first rejected reply and the first skipped round as they happen, and the totals.

    Every one of them is in the metrics, so a client that fails in every round fills no screen.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._rejected = self._skipped = False

    def on_round(self, record: RoundRecord) -> None:
        if record.skipped is not None and not self._skipped:
            self._skipped = True
            self._show(f"note: round {record.round} is skipped: {record.skipped}")
        elif record.rejected and not self._rejected:
            client, why = next(iter(record.rejected.items()))
            self._show(
                f"note: round {record.round} goes on without client {client}: {why}. "
                "Later ones are in the metrics."
            )
        self._rejected = self._rejected or bool(record.rejected)

    def on_end(self, result: RunResult) -> None:
        if result.rejected or result.skipped:
            self._show(
                f"note: {result.rejected} replies were rejected and {result.skipped} of "
                f"{result.rounds} rounds were skipped; the metrics have the reasons"
            )
        unscored = result.personal_models.unscored if result.personal_models else {}
        for client, why in list(unscored.items())[:1]:
            self._show(f"note: {len(unscored)} clients have no score (client {client}: {why})")
