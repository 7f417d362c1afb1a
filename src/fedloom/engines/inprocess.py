"""The exact engine: clients one after the other in this process, one intra-op thread, the same bits every time."""

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
    """A client that failed, with where it was; for people, rounds count from 1."""

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
            f"client {client} failed in round {round + 1}, phase {phase}, step {step}, batch shapes {batch}: {cause}"
        )

    @classmethod
    def of(cls, client: int, round: int, progress: Progress, cause: Exception) -> ClientError:
        """The error of a client that had come so far."""
        said = f"{type(cause).__name__}: {cause}"
        return cls(
            client, round, progress.phase, progress.step, [list(s) for s in progress.shapes], said
        )


class InProcess:
    """One bench for all clients. The caller's random state and thread count are as before when a map has ended."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.model_pool = ModelPool(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        with one_thread(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            for task in tasks:
                yield task.client, self.play(sent, task)

    def play(self, sent: Broadcast, task: Task) -> Any:
        """One client's answer."""
        progress = Progress()
        try:
            return answer(self.federation, self.model_pool, sent, task, progress)
        except Exception as error:
            raise ClientError.of(task.client, sent.round, progress, error) from error

    def close(self) -> None:
        """Nothing to release."""


def open(workload: Workload) -> tuple[Federation, InProcess]:
    """The federation as it is, on the in-process engine."""
    return workload.federation, InProcess(workload.federation)
