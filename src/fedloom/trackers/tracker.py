"""A callback that writes runs to a tracker, and must never stop one.

Whatever a tracker raises (disk full, server gone), the user is told once and the run goes on
without it. A resumed run continues its log: rounds that the log lacks are written, and none twice.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from fedloom.core.errors import UserError, shortened
from fedloom.experiment.callbacks import Callback, RunStart
from fedloom.experiment.train import Interrupted
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.trackers.contents import (
    client_accuracy,
    client_metrics,
    final_metrics,
    round_metrics,
)
from fedloom.trackers.files import run_files

if TYPE_CHECKING:
    from fedloom.core.params import Params

Ending = Literal["finished", "interrupted", "failed"]
Numbers = Mapping[str, float]


class RunLog(Protocol):
    """One run in a tracker, open for writing. look: the command with which to look at it."""

    look: str

    def round(self, number: int, metrics: Numbers) -> None:
        """Write the metrics of a round, unless the log has them already."""

    def final(self, rounds: int, metrics: Numbers) -> None:
        """Write what only a finished run has."""

    def clients(self, scores: Mapping[str, Mapping[int, float]]) -> None:
        """Write scores by name and client."""

    def files(self, paths: Sequence[Path]) -> None:
        """Keep these files, which may be temporary."""

    def close(self, ending: Ending) -> None:
        """Say how the run ended; nothing is written after this."""


class Tracker(Callback, ABC):
    """Base of the trackers. A subclass says how to open the log of a run.

    clients: also write, at the end, a score for each client: accuracy of its own model on all test
    data where the method makes one, rounds in which it took part, and replies that were rejected.
    A tracker can follow several runs, one after the other.
    """

    name = ""  # as in --track
    keeps_files = True

    def __init__(self, *, clients: bool = False) -> None:
        check_installed(self.name)
        self._with_clients = clients
        self._log: RunLog | None = None
        self._look: str | None = None

    @abstractmethod
    def open_log(self, start: RunStart) -> RunLog:
        """The log of a run that begins or resumes."""

    @property
    def look(self) -> str | None:
        """How to look at the log of the last run; None if there is none."""
        return self._look

    def on_start(self, start: RunStart) -> None:
        self._log = self._look = None
        self._warn, self._config, self._folder = start.warn, start.config, start.folder
        self._records: list[RoundRecord] = []  # of a run that has no file of them
        self._asked: Counter[int] = Counter()
        self._rejected: Counter[int] = Counter()
        self._weights: Params = {}

        def begin() -> None:
            self._log = self.open_log(start)
            self._look = self._log.look
            for record in start.earlier:
                self._write(self._log, record)

        self._attempt(begin)

    def on_round(self, record: RoundRecord) -> None:
        if self._folder is None:
            self._records.append(record)
        if (log := self._log) is not None:
            self._attempt(lambda: self._write(log, record))

    def on_weights(self, weights: Params) -> None:
        if self.keeps_files and self._log is not None:
            self._weights = weights

    def on_end(self, result: RunResult) -> None:
        if (log := self._log) is not None:
            self._attempt(lambda: self._finish(log, result))
        self._log, self._weights = None, {}

    def on_stop(self, error: BaseException) -> None:
        interrupted = isinstance(error, Interrupted | KeyboardInterrupt)
        if (log := self._log) is not None:
            self._attempt(lambda: log.close("interrupted" if interrupted else "failed"))
        self._log = None

    def _write(self, log: RunLog, record: RoundRecord) -> None:
        log.round(record.round, round_metrics(record))
        if self._with_clients:
            self._asked.update(record.participants)
            self._rejected.update(record.rejected.keys())

    def _finish(self, log: RunLog, result: RunResult) -> None:
        log.final(result.rounds, final_metrics(result))
        if self._with_clients:
            every = range(result.clients)
            accuracy = client_accuracy(result.personal_models)
            log.clients(
                {
                    **({"accuracy": accuracy} if accuracy else {}),
                    **client_metrics(result.client_scores),
                    "rounds": {client: self._asked[client] for client in every},
                    "rejected": {client: self._rejected[client] for client in every},
                }
            )
        if self.keeps_files:
            with run_files(
                self._folder, self._config, self._records, result, self._weights
            ) as files:
                log.files(files)
        log.close("finished")

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do it. If it fails, tell the user and do nothing more for this run."""
        try:
            action()
        except Exception as error:
            reason = shortened(f"{type(error).__name__}: {error}", 300)
            self._warn(f"note: {self.name} has stopped ({reason}); the run goes on without it")
            broken, self._log, self._look = self._log, None, None
            if broken is not None:
                with suppress(Exception):
                    broken.close("failed")


def check_installed(name: str) -> None:
    """Raise unless the package of a tracker, which has its name, can be imported."""
    spec = importlib.util.find_spec(name)
    # without an origin it is no package but a folder of that name, such as ./wandb with its runs
    if spec is None or spec.origin is None:
        raise UserError(
            f"tracker '{name}' needs the package {name}; install it with: "
            f'pip install "fedloom[{name}]"'
        )
