"""A progress bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from fedloom.experiment.callbacks import Callback, RunStart
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.metrics.score import SCORES


class Progress(Callback):
    """Shows every round on stderr, with the time left.

    As a context manager it leaves the terminal in order even if the run is interrupted.
    """

    def __init__(self, title: str | None = None, console: Console | None = None) -> None:
        self._title = title
        self._console = console or Console(file=sys.stderr, soft_wrap=True)
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def on_start(self, start: RunStart) -> None:
        self._title = self._title or start.title
        score = SCORES[start.config.task].name
        self._accuracy = f"validation {score}" if start.config.data.validation else score
        self._rounds, self._first, self._began = start.rounds, start.completed, time.perf_counter()
        if self._console.is_terminal:
            self._bar = _bar(self._console)
            self._bar.start()
            self._task = self._bar.add_task(
                self._title, total=start.rounds, completed=start.completed, note=""
            )

    def on_round(self, record: RoundRecord) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=record.round, note=self._note(record))
            return
        done = f"{self._title}: round {record.round}/{self._rounds}{self._note(record)}"
        self._console.print(f"{done}, {self._left(record.round)}", markup=False, highlight=False)

    def on_end(self, result: RunResult) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _note(self, record: RoundRecord) -> str:
        score, loss = record.accuracy, record.train_loss
        parts = [
            f"{len(record.participants)} clients",
            "" if score is None else f"{self._accuracy} {score:.4f}",
            "" if loss is None else f"loss {loss:.4f}",
            f"{len(record.rejected)} rejected" if record.rejected else "",
            "" if record.skipped is None else "round skipped",
        ]
        return ", " + ", ".join(filter(None, parts))

    def _left(self, round: int) -> str:
        """The time left, judged from the rounds of this process."""
        per_round = (time.perf_counter() - self._began) / (round - self._first)
        return f"{per_round * (self._rounds - round):.0f} s left"


def _bar(console: Console) -> Bar:
    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
