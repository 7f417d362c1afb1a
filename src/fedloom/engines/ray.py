"""The Ray engine: workers on the machines of a Ray cluster. The same bits as in-process.

Data and broadcast are objects in the cluster's store, put there once and read in place on every
node. A worker keeps no state that a call does not bring along: if a worker or its node dies, or a
worker hangs, another one runs its client again. We do that ourselves: Ray's restarts would hold a
client back until its old worker finds a free core. A client that costs too many workers is absent
from the round.

Ray listens on the network and unpickles what it receives: anyone who can reach the cluster can run
code in it. Use it in trusted networks only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.federation import Federation
from fedloom.core.request import Broadcast, Task
from fedloom.core.server import Absent
from fedloom.engines.lost_workers import (
    MAX_DEATHS,
    STARTUP_SECONDS,
    LostWorkers,
    seconds_until_first,
)
from fedloom.engines.ray_arrays import as_arrays, as_tensors
from fedloom.engines.ray_connection import connect, import_ray
from fedloom.engines.ray_worker import RayWorker, check_versions, kill_process
from fedloom.engines.ray_worker_handle import RayWorkerHandle
from fedloom.engines.wire import Facts, WireError, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation

_KILL_SECONDS = 30  # for a node to end a process


class TaskQueue:
    """The clients that still have to run in a map, and the workers that were lost in it.

    timeout: seconds that a client may take. failed_starts: workers lost before they ran a client.
    """

    def __init__(self, tasks: Iterable[Task], timeout: float | None) -> None:
        self.waiting, self.returned = iter(tasks), list[Task]()
        self.lost, self.failed_starts = LostWorkers(timeout), 0

    def next(self) -> Task | None:
        """The next client; None if there is none for now."""
        return self.returned.pop() if self.returned else next(self.waiting, None)

    def put_back(self, task: Task) -> None:
        """Run this client again, before those that wait."""
        self.returned.append(task)

    def after_loss(self, task: Task, absent: Absent | None) -> Iterator[tuple[int, Absent]]:
        """The answer of a client whose worker was lost; nothing if it is run again."""
        if absent is None:
            self.put_back(task)
        else:
            yield task.number, absent

    def count_failed_start(self, cause: Exception | str) -> None:
        """A worker was lost before it ran a client; raises RunError if that happens too often."""
        self.failed_starts += 1
        if self.failed_starts >= MAX_DEATHS:
            raise RunError(
                f"{MAX_DEATHS} workers of the Ray cluster died while starting; there may be too "
                f"little memory, or a node without fedloom. The last error: {cause}"
            )


class RayCluster:
    """A number of workers, one core each; 0: one for every core of the cluster.

    address: of a cluster to join; default: RAY_ADDRESS. Without either, a cluster is started on
    this machine.
    """

    def __init__(self, workers: int = 0, address: str | None = None) -> None:
        self.ray = import_ray()
        self.owns_ray = not self.ray.is_initialized()
        if self.owns_ray:
            connect(self.ray, workers, address or os.environ.get("RAY_ADDRESS"))
        self.actor_class = self.ray.remote(num_cpus=1)(RayWorker)
        count = workers or max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        self.workers = [self._new_worker() for _ in range(count)]
        self.recipe_number = 0

    def load(self, recipe: Recipe) -> Federation:
        """Share the data and the recipe of the federation; the federation built here."""
        layout, tensors = self.share(recipe.tensors)
        message = recipe.message(layout=layout)
        self.start(message)
        return build_federation(message, tensors)

    def share(self, tensors: Mapping[str, Tensor]) -> tuple[Facts, dict[str, Tensor]]:
        """Put the data into the cluster's store.

        This process keeps its tensors, because the store ends with Ray.
        """
        self.data = self.ray.put(as_arrays(tensors))
        return {}, dict(tensors)

    def start(self, recipe: Facts) -> None:
        """Set the recipe of the federation. It replaces an earlier one."""
        self.recipe_number += 1
        self.recipe = self.ray.put(recipe)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for worker in self.workers:
            if worker.task is not None:  # from an earlier map that was not read to its end
                worker.pending = worker.task = None
        queue = TaskQueue(tasks, sent.timeout)
        shared = {name: as_arrays(tensors) for name, tensors in sent.shared.items()}
        facts = (sent.work, sent.round, as_arrays(sent.params), shared, sent.timeout)
        broadcast = self.ray.put(facts)
        while self._submit(queue, broadcast):
            for worker in self._ready(sent.timeout):
                yield from self._answers(worker, queue)
            for worker in [w for w in self.workers if w.pending is not None]:
                if worker.deadline(sent.timeout) <= time.monotonic():
                    yield from self._give_up(worker, queue)

    def _submit(self, queue: TaskQueue, broadcast: Any) -> bool:
        """Give a client to every idle worker; whether there are answers to wait for."""
        for worker in self.workers:
            if worker.pending is not None:
                continue
            if (task := queue.next()) is None:
                return any(worker.task is not None for worker in self.workers)
            if worker.recipe != self.recipe_number:
                queue.put_back(task)
                worker.recipe = self.recipe_number
                worker.call(worker.actor.load.remote(self.recipe, self.data))
                continue
            memories = {slot: as_arrays(tensors) for slot, tensors in task.memories.items()}
            worker.call(worker.actor.run_client.remote(broadcast, task.number, memories), task)
        return True

    def _ready(self, timeout: float | None) -> list[RayWorkerHandle]:
        """Wait for the first worker that has answered; none if a deadline passes before."""
        pending = {w.pending: w for w in self.workers if w.pending is not None}
        seconds = seconds_until_first(worker.deadline(timeout) for worker in pending.values())
        ready, _ = self.ray.wait(list(pending), timeout=seconds)
        return [pending[reference] for reference in ready]

    def _answers(self, worker: RayWorkerHandle, queue: TaskQueue) -> Iterator[tuple[int, Any]]:
        """A worker's answer for its client; nothing if it has started, loaded or died."""
        task, pending = worker.task, worker.pending
        worker.pending = worker.task = None
        try:
            result = self.ray.get(pending)
        except self.ray.exceptions.RayTaskError as error:
            raise RunError(
                f"a worker of the Ray cluster failed: {error.cause}; "
                "files that the settings name must be on every node"
            ) from error
        except self.ray.exceptions.RayError as error:
            self._replace(worker)
            if task is None:
                queue.count_failed_start(error)
                return
            how = str(error).partition("\n")[0]
            yield from queue.after_loss(task, queue.lost.after_death(task.number, how))
            return
        if task is not None:
            yield task.number, _unpacked(task.number, result)
        elif result is not None:
            check_versions(result)
            worker.process, worker.node = result["process"], result["node"]

    def _give_up(self, worker: RayWorkerHandle, queue: TaskQueue) -> Iterator[tuple[int, Absent]]:
        """Replace a worker that hangs; its client is run again, or absent if it has hung before."""
        task = worker.task
        if not worker.process:
            self._check_any_started()
            worker.since = time.monotonic()  # its core may be in use; the others go on meanwhile
            return
        self._kill(worker)
        self._replace(worker)
        if task is None:
            queue.count_failed_start(f"it was not ready after {STARTUP_SECONDS:.0f} s")
            return
        yield from queue.after_loss(task, queue.lost.after_timeout(task.number))

    def _check_any_started(self) -> None:
        if not any(worker.process for worker in self.workers):
            raise RunError(
                f"no worker of the Ray cluster started within {STARTUP_SECONDS:.0f} s; "
                "its cores may be in use: see `ray status`"
            )

    def _kill(self, worker: RayWorkerHandle) -> None:
        """End the process of a worker at once, on its node.

        `ray.kill` asks the process to end, and one that was stopped by a signal does not.
        """
        self.ray.kill(worker.actor)
        if worker.process:
            strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                worker.node, soft=False
            )
            kill = self.ray.remote(num_cpus=0, scheduling_strategy=strategy)(kill_process)
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(kill.remote(worker.process), timeout=_KILL_SECONDS)

    def _replace(self, lost: RayWorkerHandle) -> None:
        self.workers[self.workers.index(lost)] = self._new_worker()

    def _new_worker(self) -> RayWorkerHandle:
        actor = self.actor_class.remote()
        return RayWorkerHandle(actor, actor.start.remote(), time.monotonic())

    def close(self) -> None:
        """End all workers, and leave or stop the cluster if it was joined or started here."""
        for worker in self.workers:
            self.ray.kill(worker.actor)
        if self.owns_ray:
            self.ray.shutdown()


def open(workload: Workload) -> tuple[Federation, RayCluster]:
    """Workers on a Ray cluster for the workload: new ones, or those that are open already."""
    cluster = workload.open_engine
    if not isinstance(cluster, RayCluster):
        cluster = RayCluster(workload.workers)
    try:
        return cluster.load(workload.recipe), cluster
    except BaseException:
        cluster.close()
        raise


def _unpacked(client: int, result: Any) -> Any:
    """The answer in what a worker returned; Absent if it is none."""
    try:
        facts, arrays = result
        return unpack(facts, as_tensors(arrays))
    except (WireError, TypeError, ValueError, AttributeError) as error:
        return Absent(client, f"its worker sent {error}")
