"""The exact engine: clients one after the other in this process, one intra-op thread, the same bits every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fedloom.core.client import Broadcast, Federation, Task, answer
from fedloom.core.errors import RunError
from fedloom.core.exact import one_thread
from fedloom.core.job import Bench, Where


class ClientError(RunError):
    """A client that failed, with where it was; for people, rounds count from 1."""

    def __init__(self, client: int, round: int, phase: int, step: int, shapes: list[list[int]], cause: str) -> None:
        self.client = client
        self.facts = {"client": client, "round": round, "phase": phase, "step": step, "shapes": shapes, "cause": cause}
        batch = ", ".join(str(tuple(s)) for s in shapes) or "no batch yet"
        super().__init__(f"client {client} failed in round {round + 1}, phase {phase}, step {step}, batch shapes {batch}: {cause}")

    @classmethod
    def of(cls, client: int, round: int, where: Where, cause: Exception) -> ClientError:
        """The error of a client that had come so far."""
        said = f"{type(cause).__name__}: {cause}"
        return cls(client, round, where.phase, where.step, [list(s) for s in where.shapes], said)


class InProcess:
    """One bench for all clients. The caller's random state and thread count are as before when a map has ended."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.bench = Bench(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        with one_thread(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for task in tasks:
                yield task.client, self.play(sent, task)

    def play(self, sent: Broadcast, task: Task) -> Any:
        """One client's answer."""
        where = Where()
        try:
            return answer(self.federation, self.bench, sent, task, where)
        except Exception as error:
            raise ClientError.of(task.client, sent.round, where, error) from error

    def close(self) -> None:
        """Nothing is held."""
