"""The in-process engine: clients one after the other, on one thread; always the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fedloom.core.client import Broadcast, Federation, Task, answer
from fedloom.core.determinism import one_thread
from fedloom.core.errors import RunError
from fedloom.core.job import ModelPool, Progress
from fedloom.engines.workload import Workload


class ClientError(RunError):
    """A client failed; the message says where it was. Messages count rounds from 1.

    facts: the arguments, for JSON.
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
        super().__init__(
            f"client {client} failed in round {round + 1}, phase {phase}, step {step}, "
            f"batch shapes {batch}: {cause}"
        )

    @classmethod
    def of(cls, client: int, round: int, progress: Progress, cause: Exception) -> ClientError:
        """The error of a client that got this far."""
        shapes = [list(s) for s in progress.shapes]
        text = f"{type(cause).__name__}: {cause}"
        return cls(client, round, progress.phase, progress.step, shapes, text)


class InProcess:
    """One model pool for all clients.

    After a map, the caller's random state and number of threads are as they were before.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.model_pool = ModelPool(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        with one_thread(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for task in tasks:
                yield task.number, self.run_client(sent, task)

    def run_client(self, sent: Broadcast, task: Task) -> Any:
        """One client's answer; ClientError if it fails."""
        progress = Progress()
        try:
            return answer(self.federation, self.model_pool, sent, task, progress)
        except Exception as error:
            raise ClientError.of(task.number, sent.round, progress, error) from error

    def close(self) -> None:
        """Nothing to release."""


def open(workload: Workload) -> tuple[Federation, InProcess]:
    """The federation as it is, on the in-process engine."""
    return workload.federation, InProcess(workload.federation)
