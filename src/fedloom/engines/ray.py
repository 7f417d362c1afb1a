"""The Ray engine: the pool's contract on the machines of a Ray cluster. The same bits as in-process.

Data and broadcast are objects of the cluster, put once and read in place on every node. A worker keeps nothing that a call does
not bring along: where one dies, or its whole node, another plays its client again. That is left to us and not to Ray's restarts,
which would hold a client back until its old worker finds a free core.

Ray listens on the network, and pickles: who may speak to the cluster may run code in it. It is for networks that are trusted.
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
from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.errors import RunError, UserError
from fedloom.engines.inprocess import ClientError, InProcess
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.pool import PATIENCE
from fedloom.engines.wire import Facts, pack, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation

ARRIVAL = 300.0  # seconds until some worker has to be there

Arrays = dict[str, np.ndarray]


class RayWorker:
    """A worker, on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self.number = 0

    def hello(self) -> Facts:
        """The first word: what the bits depend on here."""
        return _bits()

    def play(
        self,
        recipe: Facts,
        data: Arrays,
        sent: tuple[Any, ...],
        client: int,
        memories: dict[str, Arrays],
    ) -> tuple[Facts, Arrays]:
        """One client's answer, or where it failed."""
        if self.number != recipe["number"]:
            self.engine = InProcess(build_federation(recipe, _tensors(data)))
            self.number = recipe["number"]
        work, round, params, shared = sent
        broadcast = Broadcast(
            work, round, _tensors(params), {word: _tensors(p) for word, p in shared.items()}
        )
        try:
            packed = pack(
                self.engine.play(
                    broadcast, Task(client, {slot: _tensors(p) for slot, p in memories.items()})
                )
            )
        except ClientError as error:
            return {"failed": error.facts}, {}
        return packed.facts, _arrays(packed.tensors)


@dataclass(eq=False)
class WorkerHandle:
    """A worker as the server sees it: what it is to answer, and for which client; a first word is for none."""

    actor: Any
    due: Any
    task: Task | None = None


class Queue:
    """The clients still to be asked. One whose worker died comes back, but not for ever."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.waiting, self.again, self.deaths = iter(tasks), list[Task](), Counter[int]()

    def next(self) -> Task | None:
        """The next client; None if there is none for now."""
        return self.again.pop() if self.again else next(self.waiting, None)

    def back(self, task: Task | None, why: Exception) -> None:
        """A worker died over this client, or before it said a word."""
        name = "no client yet" if task is None else f"client {task.client}"
        died = -1 if task is None else task.client
        self.deaths[died] += 1
        if self.deaths[died] >= PATIENCE:
            raise RunError(f"{PATIENCE} workers of the Ray cluster died over {name}; there may be too little memory, or no fedloom "
                           f"on a node; the last one said: {why}") from why  # fmt: skip
        if task is not None:
            self.again.append(task)


class RayCluster:
    """So many workers, one core each; 0: as many as the cluster has cores. `start` tells them what to play.

    address: of a cluster to join, else that in RAY_ADDRESS; without any, one is started on this machine.
    """

    def __init__(self, workers: int = 0, address: str | None = None) -> None:
        self.ray = _ray()
        self.ours = not self.ray.is_initialized()
        if self.ours:
            _open(self.ray, workers, address or os.environ.get("RAY_ADDRESS"))
        self.kind = self.ray.remote(num_cpus=1)(RayWorker)
        self.members = [
            self._hire()
            for _ in range(workers or max(1, int(self.ray.cluster_resources().get("CPU", 0))))
        ]
        self.number = 0

    def share(self, tensors: Mapping[str, Tensor]) -> tuple[Facts, dict[str, Tensor]]:
        """Put the data where all workers see them. This process keeps its own: Ray's memory ends with Ray."""
        self.data = self.ray.put(_arrays(tensors))
        return {}, dict(tensors)

    def load(self, recipe: Recipe) -> Federation:
        """Share the data and the recipe; the federation here, which has the same tensors."""
        layout, tensors = self.share(recipe.tensors)
        message = recipe.message(layout=layout)
        self.start(message)
        return build_federation(message, tensors)

    def start(self, recipe: Facts) -> None:
        """Tell how to build the federation; a later recipe takes the place of an earlier one."""
        self.number += 1
        self.recipe = self.ray.put({**recipe, "number": self.number})

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for member in self.members:
            if member.task is not None:  # left over from a map that nobody read to its end
                member.due = member.task = None
        shared = {word: _arrays(p) for word, p in sent.shared.items()}
        queue, broadcast = (
            Queue(tasks),
            self.ray.put((sent.work, sent.round, _arrays(sent.params), shared)),
        )
        more = self._hand_out(queue, broadcast)
        while more:
            member = self._first()
            task, reply = member.task, self._answer(member, queue)
            more = self._hand_out(queue, broadcast)
            if task is not None and reply is not None:
                yield task.client, reply

    def _hand_out(self, queue: Queue, broadcast: Any) -> bool:
        """A client for every worker that is free; whether there is anything left to wait for."""
        for member in self.members:
            if member.due is not None:
                continue
            if (task := queue.next()) is None:
                return any(m.task is not None for m in self.members)
            memories = {slot: _arrays(p) for slot, p in task.memories.items()}
            member.due, member.task = (
                member.actor.play.remote(self.recipe, self.data, broadcast, task.client, memories),
                task,
            )
        return True

    def _first(self) -> WorkerHandle:
        """The first worker to have something to say."""
        due = {m.due: m for m in self.members if m.due is not None}
        at_work = any(m.task is not None for m in self.members)
        done, _ = self.ray.wait(list(due), timeout=None if at_work else ARRIVAL)
        if not done:
            raise RunError(
                f"no worker of the Ray cluster came within {ARRIVAL:.0f} s; its cores may be taken: see `ray status`"
            )
        return due[done[0]]

    def _answer(self, member: WorkerHandle, queue: Queue) -> Any:
        """What a worker said of its client; None for a first word, and for one that died, in whose place there is another."""
        task, due = member.task, member.due
        member.due = member.task = None
        try:
            said = self.ray.get(due)
        except self.ray.exceptions.RayTaskError as error:
            raise RunError(
                f"a worker of the Ray cluster failed: {error.cause}; a file named here must be on every node"
            ) from error
        except self.ray.exceptions.RayError as error:
            self.members[self.members.index(member)] = self._hire()
            queue.back(task, error)
            return None
        if task is None:
            return _check(said)
        facts, arrays = said
        if "failed" in facts:
            raise ClientError(**facts["failed"])
        return unpack(facts, _tensors(arrays))

    def _hire(self) -> WorkerHandle:
        actor = self.kind.remote()
        return WorkerHandle(actor, actor.hello.remote())

    def close(self) -> None:
        """End all workers, and Ray if it was started or joined here."""
        for member in self.members:
            self.ray.kill(member.actor)
        if self.ours:
            self.ray.shutdown()


def open(workload: Workload) -> tuple[Federation, RayCluster]:
    """Workers on a Ray cluster for the workload, or those that are open already."""
    cluster = workload.open_engine
    if not isinstance(cluster, RayCluster):
        cluster = RayCluster(workload.workers)
    try:
        return cluster.load(workload.recipe), cluster
    except BaseException:
        cluster.close()
        raise


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UserError(
            "engine 'ray' needs Ray; install it with: pip install \"fedloom[ray]\""
        ) from None
    return ray


def _open(ray: Any, workers: int, address: str | None) -> None:
    """Join a cluster or start one; a started one sends no usage statistics, `ray.init` sees to that itself."""
    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    _hush()
    if address is None:
        ray.init(address="local", num_cpus=workers or None, include_dashboard=False, **quiet)
        return
    host, _, port = address.rpartition(":")
    try:
        if (
            port.isdigit() and "/" not in host
        ):  # Ray itself would knock for minutes where nobody listens
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address=address, **quiet)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster to join at '{address}': {error}; start one with: ray start --head"
        ) from error


def _hush() -> None:
    """Ray would print on our stdout that a worker died, and has no public switch for it; we see to dead workers ourselves."""
    with suppress(ImportError):
        from ray._private.ray_logging import stdout_deduplicator

        stdout_deduplicator.skip_re = re.compile("^A worker died or was killed")


def _bits() -> Facts:
    return {
        "fedloom": fedloom.__version__,
        "torch": torch.__version__,
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
    }


def _check(theirs: Facts) -> None:
    """Refuse a worker that would give other bits: the result would hang on who plays whom."""
    for what, here in _bits().items():
        if theirs[what] != here:
            raise RunError(f"a node of the Ray cluster has {what} {theirs[what]}, and this one has {here}; "
                           "make them the same (ATEN_CPU_CAPABILITY sets the last)")  # fmt: skip


def _arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    return {name: t.numpy() for name, t in tensors.items()}


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    """Views. They lie in memory that is read-only, of which torch warns; nobody writes into what it was sent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: torch.from_numpy(a) for name, a in arrays.items()}
