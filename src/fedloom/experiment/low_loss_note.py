"""Tells the user once that the training loss has fallen below what the method calls healthy."""

from __future__ import annotations

from collections.abc import Callable

from fedloom.experiment.callbacks import Callback, RunStart
from fedloom.metrics.records import RoundRecord


class LowLossNote(Callback):
    """Shows the first round whose mean training loss is below the floor of the method.

    floor: `loss_floor` of the method; with None nothing is ever shown. A run that is resumed after
    such a round does not show it again.
    """

    def __init__(self, floor: float | None, show: Callable[[str], None]) -> None:
        self._floor, self._show = floor, show
        self._shown = False

    def on_start(self, start: RunStart) -> None:
        self._shown = any(self._is_low(record) for record in start.earlier)

    def on_round(self, record: RoundRecord) -> None:
        if self._shown or not self._is_low(record):
            return
        self._shown = True
        self._show(
            f"note: the training loss of round {record.round} is {record.train_loss:.3g}, below "
            f"{self._floor:g}. This method's loss has no lower bound, and training may now lower "
            "it at the expense of accuracy. If the accuracy drops, lower train.lr or the "
            "method's weights"
        )

    def _is_low(self, record: RoundRecord) -> bool:
        loss = record.train_loss
        return self._floor is not None and loss is not None and loss < self._floor
