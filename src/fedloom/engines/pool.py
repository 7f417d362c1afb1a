"""The pool engine: worker processes, one core each, that live as long as the run. The same bits as in-process.

Data and broadcast lie in shared memory; memories go out and replies come back through an arena of each worker. A worker that
dies is replaced and its client played again: an answer hangs on nothing but the broadcast, the client's memories and its key.
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
from fedloom.engines.wire import Facts, nest, receive, send, unpack
from fedloom.engines.workload import Recipe, Workload, build_federation, usable_cores

PATIENCE = 3  # workers a client may outlive
AHEAD = 2  # clients a worker has been asked for at a time


class WorkerHandle:
    """One worker process and its arenas. It is asked for at once and told what to play later.

    It is asked for the next client while it plays one, so that it never waits; hence two inboxes and two outboxes, in turn.
    """

    def __init__(self, fork_server: ForkServer, data: Arena, broadcast: Arena) -> None:
        self.inboxes, self.outboxes = (
            [Arena() for _ in range(AHEAD)],
            [Arena() for _ in range(AHEAD)],
        )
        self.connection, theirs = Pipe()
        arenas = (data, broadcast, *self.inboxes, *self.outboxes)
        with theirs:
            self.process = fork_server.worker([theirs.fileno(), *(a.fd for a in arenas)])
        self.tasks: deque[Task] = deque()
        self.turn = itertools.cycle(range(AHEAD))

    def tell(self, facts: Facts) -> None:
        """Send; whether the worker is still there shows when the answer is due."""
        with suppress(OSError):
            send(self.connection, facts)

    def ask(self, task: Task, work: str, broadcast: Facts) -> None:
        """Hand a client over."""
        self.tasks.append(task)
        turn = next(self.turn)
        memories = self.inboxes[turn].write(nest(task.memories, "memories"))
        facts = {
            "work": work,
            "client": task.client,
            "turn": turn,
            "slots": list(task.memories),
            "memories": memories,
        }
        self.tell({**facts, "broadcast": broadcast})

    def answer(self) -> tuple[int, Any]:
        """The answer to what was asked first; EOFError or OSError if the worker is gone."""
        facts = receive(self.connection)
        task = self.tasks.popleft()
        if "failed" in facts:
            raise ClientError(**facts["failed"])
        return task.client, unpack(
            facts, self.outboxes[facts.pop("turn")].read(facts.pop("layout"))
        )

    def close(self) -> None:
        """Hang up, and end what does not listen."""
        self.connection.close()
        self.process.end()
        for arena in (*self.inboxes, *self.outboxes):
            arena.close()


class Pool:
    """So many workers. `start` tells them what to play; until then they import and wait.

    nursery: where they come from, for its owner to close; without one, the pool has its own.
    """

    def __init__(self, workers: int, fork_server: ForkServer | None = None) -> None:
        self.data, self.broadcast = Arena(), Arena()
        self.fork_server, self.own = fork_server or ForkServer(), fork_server is None
        self.members = [self._hire() for _ in range(workers)]
        self.recipe: Facts = {}
        self.number = 0

    def share(self, tensors: Mapping[str, Tensor]) -> tuple[Layout, dict[str, Tensor]]:
        """Put the data where all workers see them; views of them for this process, so that they lie in memory once."""
        layout = self.data.write(tensors)
        return layout, self.data.read(layout)

    def load(self, recipe: Recipe) -> Federation:
        """Share the data, tell the workers what to build, and build the same over shared data here."""
        layout, views = self.share(recipe.tensors)
        message = recipe.message(layout=layout)
        self.start(message)
        return build_federation(message, views)

    def start(self, recipe: Facts) -> None:
        """Tell every worker how to build its federation; a later recipe takes the place of an earlier one."""
        self.recipe = recipe
        for member in self.members:
            member.tell(recipe)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self._settle()
        facts = self._spread(sent)
        waiting, lost = iter(tasks), Counter[int]()
        for _ in range(AHEAD):
            for member in self.members:
                self._next(member, waiting, sent, facts)
        while busy := {m.connection: m for m in self.members if m.tasks}:
            for connection in wait(list(busy)):
                member = busy[cast(Connection, connection)]
                try:
                    answered = member.answer()
                except (EOFError, OSError):
                    self._replace(member, lost, sent, facts)
                    continue
                self._next(member, waiting, sent, facts)
                yield answered

    def _settle(self) -> None:
        """Let the workers finish what an earlier map did not wait for; nobody wants those answers any more."""
        for member in self.members:
            while member.tasks:
                try:
                    member.answer()
                except ClientError:
                    continue
                except (
                    EOFError,
                    OSError,
                ):  # it is dead; who asks it next finds out and replaces it
                    member.tasks.clear()

    def _spread(self, sent: Broadcast) -> Facts:
        self.number += 1
        rooms = {"params": sent.params, **{f"shared {word}": p for word, p in sent.shared.items()}}
        layout = self.broadcast.write(nest(rooms, "sent"))
        return {
            "number": self.number,
            "round": sent.round,
            "layout": layout,
            "shared": list(sent.shared),
        }

    def _next(
        self, member: WorkerHandle, waiting: Iterator[Task], sent: Broadcast, facts: Facts
    ) -> None:
        task = next(waiting, None)
        if task is not None:
            member.ask(task, sent.work, facts)

    def _replace(
        self, dead: WorkerHandle, lost: Counter[int], sent: Broadcast, facts: Facts
    ) -> None:
        """A new worker in the place of a dead one, for the same clients."""
        first = dead.tasks[0].client
        lost[first] += 1
        dead.close()
        member = self.members[self.members.index(dead)] = self._hire()
        member.tell(self.recipe)
        if lost[first] >= PATIENCE:
            raise RunError(
                f"client {first} ended {PATIENCE} workers in round {sent.round + 1} (exit code {dead.process.code}); "
                "there may be too little memory: take fewer workers (--workers) or a smaller batch"
            )
        for task in dead.tasks:
            member.ask(task, sent.work, facts)

    def _hire(self) -> WorkerHandle:
        return WorkerHandle(self.fork_server, self.data, self.broadcast)

    def close(self) -> None:
        """End all workers and free the memory."""
        for member in self.members:
            member.connection.close()  # to all before the first is waited for
        for member in self.members:
            member.close()
        if self.own:
            self.fork_server.close()
        self.data.close()
        self.broadcast.close()


def open(workload: Workload) -> tuple[Federation, Pool]:
    """A pool for the workload, or the one that is open already; its data in shared memory."""
    pool = workload.open_engine
    if not isinstance(pool, Pool):
        pool = Pool(workload.workers or usable_cores(), workload.fork_server)
    try:
        return pool.load(workload.recipe), pool
    except BaseException:
        pool.close()
        raise
