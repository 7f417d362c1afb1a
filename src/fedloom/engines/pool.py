"""The pool engine: worker processes, one core each, that live as long as the run. The same bits as in-process.

Data and broadcast lie in shared memory; memories go out and replies come back through an arena of each worker. A worker that
dies is replaced and its client played again: an answer hangs on nothing but the broadcast, the client's memories and its key.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from torch import Tensor

from fedloom.core.client import Broadcast, Task
from fedloom.core.errors import RunError
from fedloom.engines.arena import Arena, Layout
from fedloom.engines.inprocess import ClientError
from fedloom.engines.wire import Facts, nest, receive, send, unpack

PATIENCE = 3  # workers a client may outlive


class Member:
    """One worker process and its arenas. It is started at once and told what to play later, so that it imports meanwhile."""

    def __init__(self, data: Arena, broadcast: Arena) -> None:
        self.inbox, self.outbox = Arena(), Arena()
        self.connection, theirs = Pipe()
        fds = [theirs.fileno(), data.fd, broadcast.fd, self.inbox.fd, self.outbox.fd]
        command = [sys.executable, "-m", "fedloom.engines.worker", *map(str, fds)]
        self.process = subprocess.Popen(
            command, pass_fds=fds, stdin=subprocess.DEVNULL, process_group=0, env={**os.environ, **_ONE_THREAD}
        )
        theirs.close()
        self.task: Task | None = None

    def ask(self, task: Task, work: str, broadcast: Facts) -> None:
        """Hand a client over; whether the worker is still there shows when the answer is due."""
        self.task = task
        facts = {"work": work, "client": task.client, "slots": list(task.mine), "mine": self.inbox.write(nest(task.mine, "mine"))}
        try:
            send(self.connection, {**facts, "broadcast": broadcast})
        except OSError:
            self.process.wait()

    def answer(self) -> Any:
        """The answer to what was asked last; EOFError or OSError if the worker is gone."""
        facts = receive(self.connection)
        self.task = None
        if "failed" in facts:
            raise ClientError(**facts["failed"])
        return unpack(facts, self.outbox.read(facts.pop("layout")))

    def close(self) -> None:
        """Hang up, and end what does not listen."""
        self.connection.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.inbox.close()
        self.outbox.close()


_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Pool:
    """So many workers. `start` tells them what to play; until then they import and wait."""

    def __init__(self, workers: int) -> None:
        self.data, self.broadcast = Arena(), Arena()
        self.members = [Member(self.data, self.broadcast) for _ in range(workers)]
        self.recipe: Facts = {}
        self.number = 0

    def share(self, tensors: Mapping[str, Tensor]) -> tuple[Layout, dict[str, Tensor]]:
        """Put the data where all workers see them; views of them for this process, so that they lie in memory once."""
        layout = self.data.write(tensors)
        return layout, self.data.read(layout)

    def start(self, recipe: Facts) -> None:
        """Tell every worker how to build its federation; a later recipe takes the place of an earlier one."""
        self.recipe = recipe
        for member in self.members:
            send(member.connection, recipe)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self._settle()
        facts = self._spread(sent)
        waiting, lives = iter(tasks), dict[int, int]()
        for member in self.members:
            self._next(member, waiting, sent, facts)
        while busy := {m.connection: m for m in self.members if m.task is not None}:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                member = busy[connection]
                task = member.task
                assert task is not None
                try:
                    reply = member.answer()
                except (EOFError, OSError):
                    self._replace(member, lives, sent, facts)
                    continue
                self._next(member, waiting, sent, facts)
                yield task.client, reply

    def _settle(self) -> None:
        """Let the workers finish what an earlier map did not wait for; nobody wants those answers any more."""
        for member in self.members:
            if member.task is not None:
                with suppress(ClientError, EOFError, OSError):
                    member.answer()
                member.task = None

    def _spread(self, sent: Broadcast) -> Facts:
        self.number += 1
        rooms = {"params": sent.params, **{f"shared {word}": p for word, p in sent.shared.items()}}
        layout = self.broadcast.write(nest(rooms, "sent"))
        return {"number": self.number, "round": sent.round, "layout": layout, "shared": list(sent.shared)}

    def _next(self, member: Member, waiting: Iterator[Task], sent: Broadcast, facts: Facts) -> None:
        task = next(waiting, None)
        if task is not None:
            member.ask(task, sent.work, facts)

    def _replace(self, dead: Member, lives: dict[int, int], sent: Broadcast, facts: Facts) -> None:
        """A new worker in the place of a dead one, for the same client."""
        task = dead.task
        assert task is not None
        lives[task.client] = lives.get(task.client, 0) + 1
        dead.close()
        if lives[task.client] >= PATIENCE:
            raise RunError(
                f"client {task.client} ended {PATIENCE} workers in round {sent.round + 1} (exit code {dead.process.returncode}); "
                "there may be too little memory: take fewer workers (--workers) or a smaller batch"
            )
        member = Member(self.data, self.broadcast)
        send(member.connection, self.recipe)
        self.members[self.members.index(dead)] = member
        member.ask(task, sent.work, facts)

    def close(self) -> None:
        """End all workers and free the memory."""
        for member in self.members:
            member.close()
        self.data.close()
        self.broadcast.close()
