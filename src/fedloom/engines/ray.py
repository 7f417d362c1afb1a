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

import logging
import math
import os
import re
import signal
import socket
import time
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
from fedloom.core.errors import RunError, UserError
from fedloom.core.federation import Federation
from fedloom.core.request import Broadcast, Task, task_for
from fedloom.core.server import Absent
from fedloom.engines.inprocess import InProcess, late
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.pool import (
    MAX_DEATHS,
    MAX_TIMEOUTS,
    STARTUP_SECONDS,
    TIMEOUT_GRACE,
    killed_workers,
)
from fedloom.engines.wire import Facts, WireError, pack, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation

_CONNECT_SECONDS = 5
_KILL_SECONDS = 30  # for a node to end a process

Arrays = dict[str, np.ndarray]


class RayWorker:
    """The actor that runs clients, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()

    def start(self) -> Facts:
        """What the bits of a result depend on, on this node, and which process this is."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return {**_versions(), "process": os.getpid(), "node": node}

    def load(self, recipe: Facts, data: Arrays) -> None:
        """Build the federation of a recipe. It replaces an earlier one."""
        self.engine = InProcess(build_federation(recipe, _tensors(data)))

    def run_client(
        self,
        sent: tuple[Any, ...],
        client: int,
        memories: dict[str, Arrays],
    ) -> tuple[Facts, Arrays]:
        """One client's answer."""
        work, round, params, shared, timeout = sent
        broadcast = Broadcast(work, round, _tensors(params), _nested_tensors(shared), timeout)
        task = task_for(work, client, _nested_tensors(memories))
        answer = self.engine.run_client(broadcast, task)
        try:
            packed = pack(answer)
            return packed.facts, _arrays(packed.tensors)
        except Exception as error:  # what the user's method made of its answer
            reason = f"its answer cannot be sent: {type(error).__name__}: {error}"
            return pack(Absent(client, reason)).facts, {}


@dataclass(eq=False)
class WorkerHandle:
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
        if self.task is None:
            return self.since + STARTUP_SECONDS
        return math.inf if timeout is None else self.since + timeout + TIMEOUT_GRACE


class TaskQueue:
    """The clients that still have to run. If a worker is lost, its client is put back.

    lost: workers lost by client and cause; client -1 stands for workers that did not start.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.waiting, self.returned = iter(tasks), list[Task]()
        self.lost = Counter[tuple[int, str]]()

    def next(self) -> Task | None:
        """The next client; None if there is none for now."""
        return self.returned.pop() if self.returned else next(self.waiting, None)

    def put_back(self, task: Task, cause: str, most: int) -> bool:
        """Run a client again whose worker was lost, unless it has lost this many before."""
        self.lost[task.number, cause] += 1
        if self.lost[task.number, cause] >= most:
            return False
        self.returned.append(task)
        return True

    def count_failed_start(self, cause: Exception | str) -> None:
        """A worker was lost before it ran a client; raises RunError if that happens too often."""
        self.lost[-1, "start"] += 1
        if self.lost[-1, "start"] >= MAX_DEATHS:
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
        self.recipe = self.ray.put(recipe)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for worker in self.workers:
            if worker.task is not None:  # from an earlier map that was not read to its end
                worker.pending = worker.task = None
        queue = TaskQueue(tasks)
        shared = {name: _arrays(tensors) for name, tensors in sent.shared.items()}
        facts = (sent.work, sent.round, _arrays(sent.params), shared, sent.timeout)
        broadcast = self.ray.put(facts)
        while self._submit(queue, broadcast):
            for worker in self._ready(sent.timeout):
                yield from self._answers(worker, queue)
            for worker in [w for w in self.workers if w.pending is not None]:
                if worker.deadline(sent.timeout) <= time.monotonic():
                    yield from self._give_up(worker, queue, sent.timeout)

    def _submit(self, queue: TaskQueue, broadcast: Any) -> bool:
        """Give a client to every idle worker; whether there are answers to wait for."""
        for worker in self.workers:
            if worker.pending is not None:
                continue
            if (task := queue.next()) is None:
                return any(worker.task is not None for worker in self.workers)
            if worker.recipe != self.recipe_number:
                queue.returned.append(task)
                worker.recipe = self.recipe_number
                worker.call(worker.actor.load.remote(self.recipe, self.data))
                continue
            memories = {slot: _arrays(tensors) for slot, tensors in task.memories.items()}
            worker.call(worker.actor.run_client.remote(broadcast, task.number, memories), task)
        return True

    def _ready(self, timeout: float | None) -> list[WorkerHandle]:
        """Wait for the first worker that has answered; none if a deadline passes before."""
        pending = {w.pending: w for w in self.workers if w.pending is not None}
        deadline = min(worker.deadline(timeout) for worker in pending.values())
        seconds = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())
        ready, _ = self.ray.wait(list(pending), timeout=seconds)
        return [pending[reference] for reference in ready]

    def _answers(self, worker: WorkerHandle, queue: TaskQueue) -> Iterator[tuple[int, Any]]:
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
            elif not queue.put_back(task, "death", MAX_DEATHS):
                reason = killed_workers(str(error).partition("\n")[0])
                yield task.number, Absent(task.number, reason)
            return
        if task is not None:
            yield task.number, _unpacked(task.number, result)
        elif result is not None:
            _check_versions(result)
            worker.process, worker.node = result["process"], result["node"]

    def _give_up(
        self, worker: WorkerHandle, queue: TaskQueue, timeout: float | None
    ) -> Iterator[tuple[int, Absent]]:
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
        elif not queue.put_back(task, "timeout", MAX_TIMEOUTS):
            yield task.number, late(task.number, timeout)

    def _check_any_started(self) -> None:
        if not any(worker.process for worker in self.workers):
            raise RunError(
                f"no worker of the Ray cluster started within {STARTUP_SECONDS:.0f} s; "
                "its cores may be in use: see `ray status`"
            )

    def _kill(self, worker: WorkerHandle) -> None:
        """End the process of a worker at once, on its node.

        `ray.kill` asks the process to end, and one that was stopped by a signal does not.
        """
        self.ray.kill(worker.actor)
        if worker.process:
            strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                worker.node, soft=False
            )
            kill = self.ray.remote(num_cpus=0, scheduling_strategy=strategy)(_kill_process)
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(kill.remote(worker.process), timeout=_KILL_SECONDS)

    def _replace(self, lost: WorkerHandle) -> None:
        self.workers[self.workers.index(lost)] = self._new_worker()

    def _new_worker(self) -> WorkerHandle:
        actor = self.actor_class.remote()
        return WorkerHandle(actor, actor.start.remote(), time.monotonic())

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
        return unpack(facts, _tensors(arrays))
    except (WireError, TypeError, ValueError, AttributeError) as error:
        return Absent(client, f"its worker sent {error}")


def _kill_process(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


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
