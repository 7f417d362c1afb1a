"""What the server asks: a Broadcast to all clients of a round, a Task for each answer it wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedloom.core.params import Params

Work = Literal["train", "exchange", "exchange every round", "personalise", "score", "evaluate"]


@dataclass(frozen=True)
class Broadcast:
    """What the server sends to every client of a round, and the work it asks for.

    shared: what is sent along with the weights, by name. timeout: seconds that a client may take;
    None: no limit.
    """

    work: Work
    round: int
    params: Params
    shared: Mapping[str, Params] = field(default_factory=dict)
    timeout: float | None = None


@dataclass(frozen=True)
class ClientTask:
    """Ask one client, given what it remembers."""

    client: int
    memories: Mapping[str, Params] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Identifies the answer."""
        return self.client


@dataclass(frozen=True)
class EvaluationTask:
    """Evaluate the server's model on one piece of the test data, for the work "evaluate"."""

    piece: int

    @property
    def number(self) -> int:
        """Identifies the answer."""
        return self.piece

    @property
    def memories(self) -> Mapping[str, Params]:
        """Empty: no client takes part."""
        return {}


Task = ClientTask | EvaluationTask


def task_for(work: Work, number: int, memories: Mapping[str, Params]) -> Task:
    """The task with this number, rebuilt in a worker from what was sent to it."""
    return EvaluationTask(number) if work == "evaluate" else ClientTask(number, memories)


Ask = Callable[[Broadcast, Iterable[Task]], Iterator[tuple[int, Any]]]  # `Simulation.ask`
