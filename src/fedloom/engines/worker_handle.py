"""A worker process of the pool, as the pool sees it: its connection, its arenas, its clients."""

from __future__ import annotations

import itertools
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any

from fedloom.core.errors import RunError
from fedloom.core.request import Task
from fedloom.engines.arena import Arena
from fedloom.engines.forkserver import GRACE_SECONDS, ForkServer
from fedloom.engines.lost_workers import hangs_after
from fedloom.engines.wire import Facts, WireError, flatten, receive, send, unpack

TASKS_IN_FLIGHT = 2  # per worker


class WorkerHandle:
    """One worker process and its arenas.

    It gets its next client while it still runs one, so that it never waits. Hence it has two
    inboxes and two outboxes, used in turn. since: when it began with its oldest client, or was told
    to build the federation (recipe: the number of that recipe; built: of the last one it built).
    """

    def __init__(self, fork_server: ForkServer, data: Arena, broadcast: Arena) -> None:
        self.inboxes = [Arena() for _ in range(TASKS_IN_FLIGHT)]
        self.outboxes = [Arena() for _ in range(TASKS_IN_FLIGHT)]
        self.connection, theirs = Pipe()
        arenas = (data, broadcast, *self.inboxes, *self.outboxes)
        with theirs:
            self.process = fork_server.worker([theirs.fileno(), *(a.fd for a in arenas)])
        self.tasks: deque[Task] = deque()
        self.next_box = itertools.cycle(range(TASKS_IN_FLIGHT))
        self.since, self.recipe, self.built = time.monotonic(), 0, 0

    def send(self, facts: Facts) -> None:
        """Send a message. If the worker is dead, that shows when its answer is read."""
        with suppress(OSError):
            send(self.connection, facts)

    def build(self, recipe: Facts) -> None:
        """Have it build the federation of a recipe, in place of the one it has."""
        self.since, self.recipe = time.monotonic(), recipe["number"]
        self.send(recipe)

    def submit(self, task: Task, work: str, broadcast: Facts) -> None:
        """Send a client to run."""
        if not self.tasks and self.is_ready:
            self.since = time.monotonic()
        self.tasks.append(task)
        box = next(self.next_box)
        memories = self.inboxes[box].write(flatten(task.memories, "memories"))
        self.send(
            {
                "work": work,
                "client": task.number,
                "box": box,
                "slots": list(task.memories),
                "memories": memories,
                "broadcast": broadcast,
            }
        )

    @property
    def is_ready(self) -> bool:
        """Whether it has built its federation."""
        return self.built == self.recipe

    def deadline(self, timeout: float | None) -> float:
        """When it is considered to hang, on the clock of `time.monotonic`."""
        return hangs_after(self.since, self.is_ready, timeout)

    def answer(self) -> tuple[int, Any] | None:
        """The answer to the oldest request; None if the worker only says that it is ready.

        EOFError or OSError if the worker is dead, WireError if it sent something else.
        """
        facts = receive(self.connection)
        self.since = time.monotonic()
        if type(facts.get("built")) is int:
            self.built = facts["built"]
            return None
        if "build_error" in facts:
            self.tasks.popleft()
            raise RunError(
                f"a worker of the pool could not build the run: {facts['build_error']}; "
                "use --engine inprocess"
            )
        box = facts.pop("box", None)
        if type(box) is not int or not 0 <= box < len(self.outboxes) or not self.tasks:
            raise WireError("a message that is no answer")
        answer = unpack(facts, self.outboxes[box].read(facts.pop("layout", None)))
        return self.tasks.popleft().number, answer

    def close(self, grace: float = GRACE_SECONDS) -> None:
        """Close the connection, and end the process; it has this many seconds to end by itself."""
        self.connection.close()
        self.process.end(grace)
        for arena in (*self.inboxes, *self.outboxes):
            arena.close()
