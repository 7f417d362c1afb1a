"""A worker process: plays one client after the other, reading from arenas and writing into one. Forked by the nursery."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch

from fedloom.core.client import Broadcast, Task, answer
from fedloom.core.job import ModelPool, Progress
from fedloom.engines.arena import Arena
from fedloom.engines.inprocess import ClientError
from fedloom.engines.malloc import keep_freed_memory
from fedloom.engines.wire import Facts, pack, receive, send, unnest
from fedloom.engines.workload import build_federation


class Worker:
    """One federation, one bench, and the arenas of this worker."""

    def __init__(
        self, connection: Connection, data: Arena, broadcast: Arena, *boxes: Arena
    ) -> None:
        self.connection, self.data, self.broadcast = connection, data, broadcast
        self.inboxes, self.outboxes = boxes[: len(boxes) // 2], boxes[len(boxes) // 2 :]

    def serve(self) -> None:
        """Answer until the pool hangs up; a recipe sets what is played from then on."""
        while True:
            try:
                asked = receive(self.connection)
            except (EOFError, OSError):
                return
            if "build" in asked:
                self.prepare(asked)
            else:
                send(self.connection, self.play(asked))

    def prepare(self, recipe: Facts) -> None:
        """The federation of the recipe."""
        self.federation = build_federation(recipe, self.data.read(recipe["layout"]))
        self.model_pool = ModelPool(self.federation.build)
        self.sent: tuple[int, Broadcast] | None = None

    def play(self, asked: Facts) -> Facts:
        """One client's answer, or where it failed."""
        turn = asked["turn"]
        memories = unnest(self.inboxes[turn].read(asked["memories"]), "memories")
        task = Task(asked["client"], {slot: memories.get(slot, {}) for slot in asked["slots"]})
        sent, progress = self._broadcast(asked), Progress()
        try:
            packed = pack(answer(self.federation, self.model_pool, sent, task, progress))
        except Exception as error:
            return {"failed": ClientError.of(task.client, sent.round, progress, error).facts}
        return packed.facts | {"turn": turn, "layout": self.outboxes[turn].write(packed.tensors)}

    def _broadcast(self, asked: Facts) -> Broadcast:
        """What the server sent to all; read anew only when it has sent something new."""
        if self.sent is None or self.sent[0] != asked["broadcast"]["number"]:
            facts = asked["broadcast"]
            rooms = unnest(self.broadcast.read(facts["layout"]), "sent")
            shared = {word: rooms.get(f"shared {word}", {}) for word in facts["shared"]}
            self.sent = (
                facts["number"],
                Broadcast(asked["work"], facts["round"], rooms.get("params", {}), shared),
            )
        return self.sent[1]


def main(connection: int, *arenas: int) -> None:
    """Serve one pool, on one thread. All are file descriptors; the arenas are data, broadcast, inboxes and outboxes."""
    torch.set_num_threads(1)
    keep_freed_memory()
    places: list[Any] = [Arena(fd) for fd in arenas]
    Worker(Connection(connection), *places).serve()
