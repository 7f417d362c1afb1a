"""The Ray engine: workers on the machines of a Ray cluster. The same bits as in-process.

Data and broadcast are objects in the cluster's store, put there once and read in place on every
node. A worker keeps no state that a call does not bring along: if a worker or its node dies,
another one runs its client again. We do that ourselves: Ray's restarts would hold a client back
until its old worker finds a free core.

Ray listens on the network and unpickles what it receives: anyone who can reach the cluster can run
code in it. Use it in trusted networks only.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedloom
from fedloom.core.client import Broadcast, Federation, Task, task_for
from fedloom.core.errors import RunError, UserError
from fedloom.engines.inprocess import ClientError, InProcess
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.pool import MAX_DEATHS
from fedloom.engines.wire import Facts, pack, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation

STARTUP_SECONDS = 300.0  # within which the first worker has to start
_CONNECT_SECONDS = 5

Arrays = dict[str, np.ndarray]


class RayWorker:
    """The actor that runs clients, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.recipe_number = 0

    def versions(self) -> Facts:
        """What the bits of a result depend on, on this node. It is called first."""
        return _versions()

    def run_client(
        self,
        recipe: Facts,
        data: Arrays,
        sent: tuple[Any, ...],
        client: int,
        memories: dict[str, Arrays],
    ) -> tuple[Facts, Arrays]:
        """One client's answer, or where it failed."""
        if self.recipe_number != recipe["number"]:
            self.engine = InProcess(build_federation(recipe, _tensors(data)))
            self.recipe_number = recipe["number"]
        work, round, params, shared = sent
        broadcast = Broadcast(work, round, _tensors(params), _nested_tensors(shared))
        try:
            answer = self.engine.run_client(
                broadcast, task_for(work, client, _nested_tensors(memories))
            )
        except ClientError as error:
            return {"failed": error.facts}, {}
        packed = pack(answer)
        return packed.facts, _arrays(packed.tensors)


@dataclass(eq=False)
class WorkerHandle:
    """A worker as the server sees it.

    pending: the call that it still has to answer, if any. task: its client; None while it starts.
    """

    actor: Any
    pending: Any
    task: Task | None = None


class TaskQueue:
    """The clients that still have to run. If a worker dies, its client is put back."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.waiting, self.returned, self.deaths = iter(tasks), list[Task](), Counter[int]()

    def next(self) -> Task | None:
        """The next client; None if there is none for now."""
        return self.returned.pop() if self.returned else next(self.waiting, None)

    def put_back(self, task: Task | None, cause: Exception) -> None:
        """A worker died while it ran this client, or (None) while it started."""
        victim = -1 if task is None else task.number
        self.deaths[victim] += 1
        if self.deaths[victim] >= MAX_DEATHS:
            when = "while starting" if task is None else f"while running client {task.number}"
            raise RunError(
                f"{MAX_DEATHS} workers of the Ray cluster died {when}; there may be too little "
                f"memory, or a node without fedloom. The last error: {cause}"
            ) from cause
        if task is not None:
            self.returned.append(task)


class RayCluster:
    """A number of workers, one core each; 0: one for every core of the cluster.

    address: of a cluster to join; default: RAY_ADDRESS. Without either, a cluster is started on
    this machine.
    """

    def __init__(self, workers: int = 0, address: str | None = None) -> None:
        self.ray = _import_ray()
        self.owns_ray = not self.ray.is_initialized()
        if self.owns_ray:
            _connect(self.ray, workers, address or os.environ.get("RAY_ADDRESS"))
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
        self.data = self.ray.put(_arrays(tensors))
        return {}, dict(tensors)

    def start(self, recipe: Facts) -> None:
        """Set the recipe of the federation. It replaces an earlier one."""
        self.recipe_number += 1
        self.recipe = self.ray.put({**recipe, "number": self.recipe_number})

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for worker in self.workers:
            if worker.task is not None:  # from an earlier map that was not read to its end
                worker.pending = worker.task = None
        queue = TaskQueue(tasks)
        shared = {name: _arrays(tensors) for name, tensors in sent.shared.items()}
        broadcast = self.ray.put((sent.work, sent.round, _arrays(sent.params), shared))
        more = self._submit(queue, broadcast)
        while more:
            worker = self._first_ready()
            task, reply = worker.task, self._answer(worker, queue)
            more = self._submit(queue, broadcast)
            if task is not None and reply is not None:
                yield task.number, reply

    def _submit(self, queue: TaskQueue, broadcast: Any) -> bool:
        """Give a client to every idle worker; whether there are answers to wait for."""
        for worker in self.workers:
            if worker.pending is not None:
                continue
            if (task := queue.next()) is None:
                return self._any_at_work()
            memories = {slot: _arrays(tensors) for slot, tensors in task.memories.items()}
            worker.task = task
            worker.pending = worker.actor.run_client.remote(
                self.recipe, self.data, broadcast, task.number, memories
            )
        return True

    def _any_at_work(self) -> bool:
        return any(worker.task is not None for worker in self.workers)

    def _first_ready(self) -> WorkerHandle:
        """Wait for the first worker that has answered."""
        pending = {w.pending: w for w in self.workers if w.pending is not None}
        timeout = None if self._any_at_work() else STARTUP_SECONDS
        ready, _ = self.ray.wait(list(pending), timeout=timeout)
        if not ready:
            raise RunError(
                f"no worker of the Ray cluster started within {STARTUP_SECONDS:.0f} s; "
                "its cores may be in use: see `ray status`"
            )
        return pending[ready[0]]

    def _answer(self, worker: WorkerHandle, queue: TaskQueue) -> Any:
        """A worker's answer for its client.

        None if it has just started, and if it has died and another one has taken its place.
        """
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
            self.workers[self.workers.index(worker)] = self._new_worker()
            queue.put_back(task, error)
            return None
        if task is None:
            return _check_versions(result)
        facts, arrays = result
        if "failed" in facts:
            raise ClientError(**facts["failed"])
        return unpack(facts, _tensors(arrays))

    def _new_worker(self) -> WorkerHandle:
        actor = self.actor_class.remote()
        return WorkerHandle(actor, actor.versions.remote())

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


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(
            "engine 'ray' needs Ray; install it with: pip install \"fedloom[ray]\""
        ) from None
    return ray


def _connect(ray: Any, workers: int, address: str | None) -> None:
    """Join a cluster or start one. `ray.init` sends no usage statistics for one that it starts."""
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    _silence_death_notices()
    if address is None:
        ray.init(address="local", num_cpus=workers or None, include_dashboard=False, **quiet)
        return
    try:
        _check_reachable(address)
        ray.init(address=address, **quiet)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster to join at '{address}': {error}; start one with: ray start --head"
        ) from error


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        target = (host.strip("[]"), int(port))
        socket.create_connection(target, timeout=_CONNECT_SECONDS).close()


def _silence_death_notices() -> None:
    """Ray prints on stdout that a worker died, without a public switch; we replace it anyway."""
    with suppress(ImportError):
        from ray._private.ray_logging import stdout_deduplicator

        stdout_deduplicator.skip_re = re.compile("^A worker died or was killed")


def _versions() -> Facts:
    return {
        "fedloom": fedloom.__version__,
        "torch": torch.__version__,
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
    }


def _check_versions(theirs: Facts) -> None:
    """Reject a node with other bits: the result would depend on where a client runs."""
    for what, here in _versions().items():
        if theirs[what] != here:
            raise RunError(
                f"a node of the Ray cluster has {what} {theirs[what]}, and this one has {here}; "
                "make them the same (ATEN_CPU_CAPABILITY sets the last)"
            )


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: t.numpy() for name, t in tensors.items()}


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Views of Ray's memory. It is read-only, of which torch warns; nothing is written to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: torch.from_numpy(a) for name, a in arrays.items()}


def _nested_tensors(groups: Mapping[str, Arrays]) -> dict[str, dict[str, Tensor]]:
    return {name: _tensors(arrays) for name, arrays in groups.items()}
