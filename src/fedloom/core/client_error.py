"""The error of a client that failed."""

from __future__ import annotations

from fedloom.core.errors import RunError
from fedloom.core.job import Progress
from fedloom.core.server import Absent


class ClientError(RunError):
    """A client failed; the message says where it was. Messages count rounds from 1.

    facts: the arguments, for JSON. reason: the message without client and round.
    """

    def __init__(
        self, client: int, round: int, phase: int, step: int, shapes: list[list[int]], cause: str
    ) -> None:
        self.client = client
        self.facts = {
            "client": client,
            "round": round,
            "phase": phase,
            "step": step,
            "shapes": shapes,
            "cause": cause,
        }
        batch = ", ".join(str(tuple(s)) for s in shapes) or "no batch yet"
        where = f"phase {phase}, step {step}, batch shapes {batch}: {cause}"
        self.reason = f"it failed in {where}"
        super().__init__(f"client {client} failed in round {round + 1}, {where}")

    @classmethod
    def of(cls, client: int, round: int, progress: Progress, cause: Exception) -> ClientError:
        """The error of a client that got this far."""
        shapes = [list(s) for s in progress.shapes]
        text = f"{type(cause).__name__}: {cause}"
        return cls(client, round, progress.phase, progress.step, shapes, text)

    def absent(self) -> Absent:
        """The answer of the client that failed."""
        return Absent(self.client, self.reason, self)
