"""The exact engine: clients one after the other in this process, one intra-op thread, the same bits every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fedloom.core.client import Broadcast, Federation, Task, answer, job_for
from fedloom.core.errors import RunError
from fedloom.core.exact import one_thread
from fedloom.core.job import Bench, Job


class ClientError(RunError):
    """A client that failed, with where it was; for people, rounds count from 1."""

    def __init__(self, job: Job, cause: Exception) -> None:
        self.client, self.round = job.client, job.round
        where = job.where
        shapes = ", ".join(str(s) for s in where.shapes) or "no batch yet"
        super().__init__(
            f"client {job.client} failed in round {job.round + 1}, phase {where.phase}, step {where.step}, "
            f"batch shapes {shapes}: {type(cause).__name__}: {cause}"
        )


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
        job = job_for(self.federation, self.bench, sent, task)
        try:
            return answer(self.federation, job, sent.work)
        except Exception as error:
            raise ClientError(job, error) from error
