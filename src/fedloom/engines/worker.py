"""A worker process of the pool: runs one client after the other. Forked by the fork server."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch

from fedloom.core.client import Broadcast, answer, task_for
from fedloom.core.job import ModelPool, Progress
from fedloom.engines.arena import Arena
from fedloom.engines.inprocess import ClientError
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.wire import Facts, pack, receive, send, unflatten
from fedloom.engines.workload import build_federation


class Worker:
    """One federation and one model pool. It reads from and writes to arenas shared with the pool.

    boxes: the inboxes, then as many outboxes.
    """

    def __init__(
        self, connection: Connection, data: Arena, broadcast: Arena, *boxes: Arena
    ) -> None:
        self.connection, self.data, self.broadcast = connection, data, broadcast
        self.inboxes, self.outboxes = boxes[: len(boxes) // 2], boxes[len(boxes) // 2 :]
        self.build_error: str | None = None

    def serve(self) -> None:
        """Answer requests until the pool closes the connection.

        A message with a recipe replaces the federation.
        """
        while True:
            try:
                message = receive(self.connection)
            except (EOFError, OSError):
                return
            if "build" in message:
                self.load(message)
            elif self.build_error is not None:
                send(self.connection, {"build_error": self.build_error})
            else:
                send(self.connection, self.run_client(message))

    def load(self, recipe: Facts) -> None:
        """Build the federation of the recipe. If that fails, every request is answered with why."""
        self.build_error = None
        self.last_broadcast: tuple[int, Broadcast] | None = None
        try:
            self.federation = build_federation(recipe, self.data.read(recipe["layout"]))
            self.model_pool = ModelPool(self.federation.build)
        except Exception as error:
            self.build_error = f"{type(error).__name__}: {error}"

    def run_client(self, request: Facts) -> Facts:
        """One client's answer, or where it failed."""
        box = request["box"]
        memories = unflatten(self.inboxes[box].read(request["memories"]), "memories")
        slots = {slot: memories.get(slot, {}) for slot in request["slots"]}
        task = task_for(request["work"], request["client"], slots)
        sent, progress = self._broadcast(request), Progress()
        try:
            packed = pack(answer(self.federation, self.model_pool, sent, task, progress))
        except Exception as error:
            return {"failed": ClientError.of(task.number, sent.round, progress, error).facts}
        return packed.facts | {"box": box, "layout": self.outboxes[box].write(packed.tensors)}

    def _broadcast(self, request: Facts) -> Broadcast:
        """The broadcast of the request; read again only if it is a new one."""
        facts = request["broadcast"]
        if self.last_broadcast is None or self.last_broadcast[0] != facts["number"]:
            groups = unflatten(self.broadcast.read(facts["layout"]), "sent")
            shared = {name: groups.get(f"shared {name}", {}) for name in facts["shared"]}
            sent = Broadcast(request["work"], facts["round"], groups.get("params", {}), shared)
            self.last_broadcast = facts["number"], sent
        return self.last_broadcast[1]


def main(connection: int, *arenas: int) -> None:
    """Serve one pool, on one thread.

    All arguments are file descriptors; the arenas are data, broadcast, inboxes and outboxes.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    opened: list[Any] = [Arena(fd) for fd in arenas]
    Worker(Connection(connection), *opened).serve()
