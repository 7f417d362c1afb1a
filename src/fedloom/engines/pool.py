"""The pool engine: worker processes on this machine, one core each. The same bits as in-process.

Data and broadcast are in shared memory; memories are sent and replies returned through arenas of
each worker. A worker that dies is replaced and its clients run again: an answer depends only on the
broadcast, the client's memories and its key.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, cast

from torch import Tensor

from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.errors import RunError
from fedloom.engines.arena import Arena, Layout
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.inprocess import ClientError
from fedloom.engines.wire import Facts, flatten, receive, send, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation, usable_cores

MAX_DEATHS = 3  # workers that one client may kill before the run ends
TASKS_IN_FLIGHT = 2  # per worker


class WorkerHandle:
    """One worker process and its arenas.

    It gets its next client while it still runs one, so that it never waits. Hence it has two
    inboxes and two outboxes, used in turn.
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

    def send(self, facts: Facts) -> None:
        """Send a message. If the worker is dead, that shows when its answer is read."""
        with suppress(OSError):
            send(self.connection, facts)

    def submit(self, task: Task, work: str, broadcast: Facts) -> None:
        """Send a client to run."""
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

    def answer(self) -> tuple[int, Any]:
        """The answer to the oldest request; EOFError or OSError if the worker is dead."""
        facts = receive(self.connection)
        task = self.tasks.popleft()
        if "build_error" in facts:
            raise RunError(
                f"a worker of the pool could not build the run: {facts['build_error']}; "
                "use --engine inprocess"
            )
        if "failed" in facts:
            raise ClientError(**facts["failed"])
        tensors = self.outboxes[facts.pop("box")].read(facts.pop("layout"))
        return task.number, unpack(facts, tensors)

    def close(self) -> None:
        """Close the connection, and end the process."""
        self.connection.close()
        self.process.end()
        for arena in (*self.inboxes, *self.outboxes):
            arena.close()


class Pool:
    """A fixed number of workers. They import and wait until `load` or `start`.

    fork_server: where they come from, closed by its owner; without one, the pool has its own.
    """

    def __init__(self, workers: int, fork_server: ForkServer | None = None) -> None:
        self.data, self.broadcast = Arena(), Arena()
        self.fork_server = fork_server or ForkServer()
        self.owns_fork_server = fork_server is None
        self.workers = [self._new_worker() for _ in range(workers)]
        self.recipe: Facts = {}
        self.broadcasts = 0  # sent so far

    def load(self, recipe: Recipe) -> Federation:
        """Share the data and have every worker build the federation; the federation built here.

        Its data are the shared ones, so that they are in memory only once.
        """
        layout, views = self.share(recipe.tensors)
        message = recipe.message(layout=layout)
        self.start(message)
        return build_federation(message, views)

    def share(self, tensors: Mapping[str, Tensor]) -> tuple[Layout, dict[str, Tensor]]:
        """Put the data into memory that all workers see; where they are, and views of them."""
        layout = self.data.write(tensors)
        return layout, self.data.read(layout)

    def start(self, recipe: Facts) -> None:
        """Send the recipe of the federation to every worker. It replaces an earlier one."""
        self.recipe = recipe
        for worker in self.workers:
            worker.send(recipe)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self._discard_unread()
        facts = self._write_broadcast(sent)
        waiting, deaths = iter(tasks), Counter[int]()
        for _ in range(TASKS_IN_FLIGHT):
            for worker in self.workers:
                self._submit_next(worker, waiting, sent, facts)
        while busy := {w.connection: w for w in self.workers if w.tasks}:
            for connection in wait(list(busy)):
                worker = busy[cast(Connection, connection)]
                try:
                    answered = worker.answer()
                except (EOFError, OSError):
                    self._replace(worker, deaths, sent, facts)
                    continue
                self._submit_next(worker, waiting, sent, facts)
                yield answered

    def _discard_unread(self) -> None:
        """Wait for answers that an earlier map did not read to its end, and drop them."""
        for worker in self.workers:
            while worker.tasks:
                try:
                    worker.answer()
                except RunError:
                    continue
                except (EOFError, OSError):  # it is dead; the next map replaces it
                    worker.tasks.clear()

    def _write_broadcast(self, sent: Broadcast) -> Facts:
        """Put the broadcast into shared memory; what a worker needs to read it."""
        self.broadcasts += 1
        shared = {f"shared {name}": tensors for name, tensors in sent.shared.items()}
        layout = self.broadcast.write(flatten({"params": sent.params, **shared}, "sent"))
        return {
            "number": self.broadcasts,
            "round": sent.round,
            "layout": layout,
            "shared": list(sent.shared),
        }

    def _submit_next(
        self, worker: WorkerHandle, waiting: Iterator[Task], sent: Broadcast, facts: Facts
    ) -> None:
        task = next(waiting, None)
        if task is not None:
            worker.submit(task, sent.work, facts)

    def _replace(
        self, dead: WorkerHandle, deaths: Counter[int], sent: Broadcast, facts: Facts
    ) -> None:
        """Start a new worker in place of a dead one, for the same clients."""
        client = dead.tasks[0].number
        deaths[client] += 1
        dead.close()
        worker = self.workers[self.workers.index(dead)] = self._new_worker()
        worker.send(self.recipe)
        if deaths[client] >= MAX_DEATHS:
            raise RunError(
                f"client {client} killed {MAX_DEATHS} workers in round {sent.round + 1} "
                f"(exit code {dead.process.code}); there may be too little memory: "
                "use fewer workers (--workers) or a smaller batch"
            )
        for task in dead.tasks:
            worker.submit(task, sent.work, facts)

    def _new_worker(self) -> WorkerHandle:
        return WorkerHandle(self.fork_server, self.data, self.broadcast)

    def close(self) -> None:
        """End all workers and free the shared memory."""
        for worker in self.workers:
            worker.connection.close()  # all of them before waiting for the first
        for worker in self.workers:
            worker.close()
        if self.owns_fork_server:
            self.fork_server.close()
        self.data.close()
        self.broadcast.close()


def open(workload: Workload) -> tuple[Federation, Pool]:
    """A pool for the workload: a new one, or the one that is open already."""
    pool = workload.open_engine
    if not isinstance(pool, Pool):
        pool = Pool(workload.workers or usable_cores(), workload.fork_server)
    try:
        return pool.load(workload.recipe), pool
    except BaseException:
        pool.close()
        raise
