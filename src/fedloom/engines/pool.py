"""The pool engine: worker processes on this machine, each with one core or, in turn, one GPU.

On CPUs it gives the same bits as in-process. Data and broadcast are in shared memory; memories are
sent and replies returned through arenas of each worker, all on the CPU: a worker with a GPU moves
them there and back. A worker that dies, hangs or sends nonsense is replaced and its clients run
again: an answer depends only on the broadcast, the client's memories and its key. A client that
costs too many workers is absent from the round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, cast

from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.federation import Federation
from fedloom.core.request import Broadcast, Task
from fedloom.core.server import Absent
from fedloom.engines.arena import Arena, Layout
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.lost_workers import LostWorkers, seconds_until_first
from fedloom.engines.wire import Facts, WireError, flatten
from fedloom.engines.worker_handle import TASKS_IN_FLIGHT, WorkerHandle
from fedloom.engines.workload import Recipe, Workload, build_federation, usable_cores


@dataclass
class Request:
    """A map under way: what is asked, who is still to be asked, and the workers lost so far."""

    sent: Broadcast
    facts: Facts
    waiting: Iterator[Task]
    lost: LostWorkers


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
        self.recipe = {**recipe, "number": self.recipe.get("number", 0) + 1}
        for number, worker in enumerate(self.workers):
            worker.build(self._recipe_of(number))

    def _recipe_of(self, worker: int) -> Facts:
        """The recipe for the worker of this number, which says on which device it runs."""
        devices = self.recipe.get("devices") or ["cpu"]
        return {**self.recipe, "device": devices[worker % len(devices)]}

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self._discard_unread(sent.timeout)
        facts, lost = self._write_broadcast(sent), LostWorkers(sent.timeout)
        request = Request(sent, facts, iter(tasks), lost)
        for _ in range(TASKS_IN_FLIGHT):
            for worker in self.workers:
                self._submit_next(worker, request)
        while busy := [w for w in self.workers if w.tasks]:
            for worker in self._readable(busy, sent.timeout):
                yield from self._read(worker, request)
            for worker in busy:
                if worker in self.workers and worker.deadline(sent.timeout) <= time.monotonic():
                    yield from self._give_up(worker, request)

    def _readable(self, busy: list[WorkerHandle], timeout: float | None) -> list[WorkerHandle]:
        """The workers that have sent something; none if the first deadline passes before."""
        seconds = seconds_until_first(worker.deadline(timeout) for worker in busy)
        by_connection = {worker.connection: worker for worker in busy}
        return [by_connection[cast(Connection, c)] for c in wait(list(by_connection), seconds)]

    def _read(self, worker: WorkerHandle, request: Request) -> Iterator[tuple[int, Any]]:
        """What a worker has sent: an answer, or nothing if it says that it is ready or has died."""
        try:
            answered = worker.answer()
        except (EOFError, OSError):
            yield from self._replace(worker, request, "death")
        except WireError as error:
            yield from self._replace(worker, request, f"its worker sent {error}")
        else:
            if answered is not None:
                self._submit_next(worker, request)
                yield answered

    def _give_up(self, worker: WorkerHandle, request: Request) -> Iterator[tuple[int, Any]]:
        """Replace a worker that hangs."""
        if worker.is_ready:
            yield from self._replace(worker, request, "timeout")
            return
        self.fork_server.close()  # the next worker gets a new one: this one may be what hangs
        yield from self._replace(worker, request, "death")

    def _discard_unread(self, timeout: float | None) -> None:
        """Wait for answers that an earlier map did not read to its end, and drop them."""
        for worker in list(self.workers):
            while worker.tasks:
                try:
                    if not self._readable([worker], timeout):
                        raise EOFError  # it hangs
                    worker.answer()
                except (EOFError, OSError, WireError):
                    self._new_worker_for(worker)
                    break
                except RunError:
                    continue

    def _write_broadcast(self, sent: Broadcast) -> Facts:
        """Put the broadcast into shared memory; what a worker needs to read it."""
        self.broadcasts += 1
        shared = {f"shared {name}": tensors for name, tensors in sent.shared.items()}
        layout = self.broadcast.write(flatten({"params": sent.params, **shared}, "sent"))
        return {
            "number": self.broadcasts,
            "round": sent.round,
            "timeout": sent.timeout,
            "layout": layout,
            "shared": list(sent.shared),
        }

    def _submit_next(self, worker: WorkerHandle, request: Request) -> None:
        task = next(request.waiting, None)
        if task is not None:
            worker.submit(task, request.sent.work, request.facts)

    def _replace(
        self, lost: WorkerHandle, request: Request, cause: str
    ) -> Iterator[tuple[int, Absent]]:
        """Put a new worker in place of a lost one, for the same clients.

        The client that it was running is absent if it has cost too many workers. cause: "death",
        "timeout", or the reason to leave the client out at once.
        """
        tasks, worker = list(lost.tasks), self._new_worker_for(lost)
        absent = _absent(lost, request, tasks[0].number, cause)
        for task in tasks if absent is None else tasks[1:]:
            worker.submit(task, request.sent.work, request.facts)
        if absent is not None:
            self._submit_next(worker, request)
            yield absent.client, absent

    def _new_worker_for(self, lost: WorkerHandle) -> WorkerHandle:
        """A new worker in place of one that is dead or hangs, which is killed."""
        lost.close(grace=0)
        number = self.workers.index(lost)
        worker = self.workers[number] = self._new_worker()
        if self.recipe:
            worker.build(self._recipe_of(number))
        return worker

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


def _absent(lost: WorkerHandle, request: Request, client: int, cause: str) -> Absent | None:
    """The answer of the client that a lost worker was running; None if it is run again."""
    if cause == "timeout":
        return request.lost.after_timeout(client)
    if cause == "death":
        return request.lost.after_death(client, f"exit code {lost.process.code}")
    return Absent(client, cause)


def open(workload: Workload) -> tuple[Federation, Pool]:
    """A pool for the workload: a new one, or the one that is open already."""
    pool = workload.open_engine
    if not isinstance(pool, Pool):
        workers = workload.workers or len(workload.recipe.devices) or usable_cores()
        pool = Pool(workers, workload.fork_server)
    try:
        return pool.load(workload.recipe), pool
    except BaseException:
        pool.close()
        raise
