"""The in-process engine: clients one after the other, on one thread; always the same bits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fedloom.core.client import answer
from fedloom.core.client_error import ClientError
from fedloom.core.determinism import fork_rng, one_thread
from fedloom.core.federation import Federation
from fedloom.core.job import ModelPool, Progress
from fedloom.core.request import Broadcast, Task
from fedloom.core.server import Absent
from fedloom.engines.workload import Workload


class OutOfTime(BaseException):
    """Raised inside a client that has used up its time. Not an Exception, which it might catch."""


class InProcess:
    """One model pool for all clients.

    After a map, the caller's random state and number of threads are as they were before.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.model_pool = ModelPool(federation.build)

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        device = next((t.device for t in sent.params.values()), None)
        with one_thread(), fork_rng(device):
            for task in tasks:
                yield task.number, self.run_client(sent, task)

    def run_client(self, sent: Broadcast, task: Task) -> Any:
        """One client's answer; Absent if it fails or takes too long."""
        progress = Progress()
        try:
            with time_limit(sent.timeout):
                return answer(self.federation, self.model_pool, sent, task, progress)
        except OutOfTime:
            absent = late(task.number, sent.timeout)
        except Exception as error:
            failure = ClientError.of(task, sent, progress, error)
            failure.__cause__ = error
            absent = failure.absent()
        # it was interrupted anywhere, so the next client gets new scratch models
        self.model_pool = ModelPool(self.federation.build)
        return absent

    def close(self) -> None:
        """Nothing to release."""


def open(workload: Workload) -> tuple[Federation, InProcess]:
    """The federation as it is, on the in-process engine."""
    return workload.federation, InProcess(workload.federation)


def late(client: int, timeout: float | None) -> Absent:
    """The answer of a client that has used up its time."""
    return Absent(client, f"it was not done after {timeout:g} s (guard.timeout)")


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise OutOfTime in this thread after this many seconds.

    It interrupts Python code, also while it sleeps or waits, but no single call into a library that
    never returns. Only the main thread of a POSIX system can be interrupted; elsewhere there is no
    limit. The pool and Ray, which end a worker from outside, have neither restriction.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main_thread or not hasattr(signal, "setitimer"):
        yield
        return

    running = True

    def interrupt(*_: object) -> None:
        if running:
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
