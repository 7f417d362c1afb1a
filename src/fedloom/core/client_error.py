"""The error of a client that failed."""

from __future__ import annotations

from fedloom.core.errors import RunError
from fedloom.core.job import Progress
from fedloom.core.request import Broadcast, Task, Work
from fedloom.core.server import Absent


class ClientError(RunError):
    """A client failed; the message says where it was. Messages count rounds from 1.

    client: None if the work was to evaluate the server's model on a piece of the test data, in
    which no client takes part. facts: the arguments, for JSON. reason: the message without client
    and round.
    """

    def __init__(
        self,
        client: int,
        round: int,
        phase: int,
        step: int,
        shapes: list[list[int]],
        cause: str,
        work: Work = "train",
    ) -> None:
        self._number = client
        self.client = None if work == "evaluate" else client
        self.facts = {
            "client": client,
            "round": round,
            "phase": phase,
            "step": step,
            "shapes": shapes,
            "cause": cause,
            "work": work,
        }
        if work == "evaluate":
            self.reason = f"it failed: {cause}"
            message = f"the model of round {round} failed on piece {client} of the test data"
            super().__init__(f"{message}: {cause}")
            return
        batch = ", ".join(str(tuple(s)) for s in shapes) or "no batch yet"
        where = f"phase {phase}, step {step}, batch shapes {batch}: {cause}"
        self.reason = f"it failed in {where}"
        super().__init__(f"client {client} failed in round {round + 1}, {where}")

    @classmethod
    def of(cls, task: Task, sent: Broadcast, progress: Progress, cause: Exception) -> ClientError:
        """The error of a client, or of an evaluation, that got this far."""
        shapes = [list(s) for s in progress.shapes]
        text = f"{type(cause).__name__}: {cause}"
        where = (progress.phase, progress.step, shapes)
        return cls(task.number, sent.round, *where, text, sent.work)

    def absent(self) -> Absent:
        """The answer of the client that failed."""
        return Absent(self._number, self.reason, self)
