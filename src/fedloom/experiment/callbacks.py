"""What can be attached to a run: progress bars, trackers, live plots.

A callback sees a run but cannot change it. `on_round` is called after the round is safe in the run
folder, so whatever a callback shows survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.core.errors import UserError
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.settings.config import Config

if TYPE_CHECKING:
    from fedloom.core.params import Params

Message = Callable[[str], None]


def ignore(message: str) -> None:
    """For messages that nobody wants to see."""


@dataclass(frozen=True)
class RunStart:
    """What is known before the first round of a run, or before the next one of a resumed run.

    title      the method as tables name it
    completed  rounds that an earlier process has finished
    earlier    their records
    folder     where the run is saved; None if it stays in memory
    warn       tells the user something
    """

    title: str
    config: Config
    clients: int
    rounds: int
    completed: int = 0
    earlier: Sequence[RoundRecord] = ()
    folder: Path | None = None
    warn: Message = ignore


class Callback:
    """Base class: override what you need.

    >>> class Printer(Callback):
    ...     def on_round(self, record):
    ...         print(record.round, record.accuracy)
    """

    def on_start(self, start: RunStart) -> None:
        """Before the first round of this process."""

    def on_round(self, record: RoundRecord) -> None:
        """After every round."""

    def on_weights(self, weights: Params) -> None:
        """Just before `on_end`: the final weights of the global model, not to be changed."""

    def on_end(self, result: RunResult) -> None:
        """After the last round, with the summary; not called if the run is interrupted."""

    def on_stop(self, error: BaseException) -> None:
        """Instead of `on_end`, if the run stops before its end: interrupted, or by an error."""


def check_callbacks(callbacks: Any) -> None:
    """Raise, before anything is prepared, unless this is a list of callbacks."""
    remedy = "pass a list of objects of classes derived from fedloom.Callback, made with ()"
    if not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks={callbacks!r} is no list; {remedy}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise UserError(f"callback {callback!r} is no fedloom.Callback; {remedy}")


class CallbackList(Callback):
    """Several callbacks as one, called in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def on_start(self, start: RunStart) -> None:
        for callback in self.callbacks:
            callback.on_start(start)

    def on_round(self, record: RoundRecord) -> None:
        for callback in self.callbacks:
            callback.on_round(record)

    def on_weights(self, weights: Params) -> None:
        for callback in self.callbacks:
            callback.on_weights(weights)

    def on_end(self, result: RunResult) -> None:
        for callback in self.callbacks:
            callback.on_end(result)

    def on_stop(self, error: BaseException) -> None:
        for callback in self.callbacks:
            callback.on_stop(error)


class RecordKeeper(Callback):
    """Keeps the record of every round, for a run that has no folder to keep them in."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []

    def on_round(self, record: RoundRecord) -> None:
        self.records.append(record)
