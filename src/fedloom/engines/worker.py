"""A worker process of the pool: runs one client after the other. Forked by the fork server."""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

import torch

from fedloom.core.determinism import deterministic
from fedloom.core.request import Broadcast, task_for
from fedloom.core.server import Absent
from fedloom.core.transfer import all_to_device
from fedloom.engines.arena import Arena
from fedloom.engines.inprocess import InProcess
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.wire import Facts, pack, receive, send, unflatten
from fedloom.engines.workload import build_federation


class Worker:
    """One federation on an in-process engine, with arenas that are shared with the pool.

    boxes: the inboxes, then as many outboxes. Arenas are on the CPU: what is read from them is
    moved to the worker's own device, and answers are copied from there.
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
            answer = self.answer(message)
            try:
                send(self.connection, answer)
            except OSError:  # the pool is gone
                return

    def answer(self, message: Facts) -> Facts:
        """What the pool is sent in return."""
        if "build" in message:
            self.load(message)
            return {"built": message["number"]}
        if self.build_error is not None:
            return {"build_error": self.build_error}
        return self.run_client(message)

    def load(self, recipe: Facts) -> None:
        """Build the federation of the recipe. If that fails, every request is answered with why."""
        self.build_error = None
        self.last_broadcast: tuple[int, Broadcast] | None = None
        try:
            self.device = current_device(recipe["device"])
            self.deterministic = recipe.get("deterministic", True)
            self.engine = InProcess(build_federation(recipe, self.data.read(recipe["layout"])))
        except Exception as error:
            self.build_error = f"{type(error).__name__}: {error}"

    def run_client(self, request: Facts) -> Facts:
        """One client's answer."""
        box = request["box"]
        given = all_to_device(self.inboxes[box].read(request["memories"]), self.device)
        memories = unflatten(given, "memories")
        slots = {slot: memories.get(slot, {}) for slot in request["slots"]}
        task = task_for(request["work"], request["client"], slots)
        with deterministic(self.device, self.deterministic):
            answer = self.engine.run_client(self._broadcast(request), task)
        try:
            return self._sent(answer, box)
        except Exception as error:  # what the user's method made of its answer
            reason = f"its answer cannot be sent: {type(error).__name__}: {error}"
            return self._sent(Absent(task.number, reason), box)

    def _sent(self, answer: Any, box: int) -> Facts:
        """Write the tensors of an answer into the outbox; the rest, as a message."""
        packed = pack(answer)
        facts = packed.facts | {"box": box, "layout": self.outboxes[box].write(packed.tensors)}
        json.dumps(facts)  # raises for values that are not JSON
        return facts

    def _broadcast(self, request: Facts) -> Broadcast:
        """The broadcast of the request; read again only if it is a new one."""
        facts = request["broadcast"]
        if self.last_broadcast is None or self.last_broadcast[0] != facts["number"]:
            received = all_to_device(self.broadcast.read(facts["layout"]), self.device)
            groups = unflatten(received, "sent")
            shared = {name: groups.get(f"shared {name}", {}) for name in facts["shared"]}
            sent = Broadcast(
                request["work"],
                facts["round"],
                groups.get("params", {}),
                shared,
                facts["timeout"],
            )
            self.last_broadcast = facts["number"], sent
        return self.last_broadcast[1]


def current_device(name: str) -> torch.device:
    """The device of that name, as the current one: this process is to use no other GPU.

    Pinned memory, for one, belongs to the current GPU, whichever the tensors are for.
    """
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def main(connection: int, *arenas: int) -> None:
    """Serve one pool, on one thread.

    All arguments are file descriptors; the arenas are data, broadcast, inboxes and outboxes.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    opened: list[Any] = [Arena(fd) for fd in arenas]
    Worker(Connection(connection), *opened).serve()
