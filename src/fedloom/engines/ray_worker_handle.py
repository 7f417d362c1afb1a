"""A worker of a Ray cluster, as the server sees it: the call that it has to answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from fedloom.core.request import Task
from fedloom.engines.lost_workers import hangs_after


@dataclass(eq=False)
class RayWorkerHandle:
    """A worker as the server sees it.

    pending: the call that it still has to answer, if any. task: its client; None while it starts or
    loads. since: when the call was made. recipe: the number of the recipe that it has loaded.
    process: its id, on the node of that name; 0 before it has started.
    """

    actor: Any
    pending: Any
    since: float
    task: Task | None = None
    recipe: int = 0
    process: int = 0
    node: str = ""

    def call(self, pending: Any, task: Task | None = None) -> None:
        """Note the call that was made of it."""
        self.pending, self.task, self.since = pending, task, time.monotonic()

    def deadline(self, timeout: float | None) -> float:
        """When it is considered to hang, on the clock of `time.monotonic`."""
        return hangs_after(self.since, self.task is not None, timeout)
