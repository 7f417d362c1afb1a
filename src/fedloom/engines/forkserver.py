"""The fork server: a process that imports torch once and forks a pool's workers in milliseconds.

    python -m fedloom.engines.forkserver SOCKET MODULE...

SOCKET is the number of an inherited descriptor; the MODULEs are imported before the first fork. The
process needs no settings: the command line starts it before it imports torch itself, and both
imports run at the same time. It forks after the imports and before there is any tensor or thread,
which is safe. multiprocessing's forkserver does the same, but would import the user's __main__
again. A request is one byte and the descriptors of a worker. The first descriptor is a pipe on
which the fork server sends the worker's process id and, at its end, its exit code.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from multiprocessing.connection import Connection, Pipe, wait
from typing import NoReturn

from fedloom.core.child_process import module_command

MAX_DESCRIPTORS = 16  # in a request
GRACE_SECONDS = 2.0  # for a worker to end before it is killed
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ForkedProcess:
    """A worker, as the process that asked for it sees it."""

    def __init__(self, status: Connection) -> None:
        self._status = status
        self.code: int | str = "unknown"

    @cached_property
    def pid(self) -> int:
        """The process id, once the worker exists; EOFError if the fork server died before."""
        return int(self._status.recv_bytes())

    def end(self, grace: float = GRACE_SECONDS) -> None:
        """Wait until the worker has ended; kill it if it does not end in this many seconds.

        The worker holds the pipe as well: if the fork server is dead and cannot send the exit code,
        the end of the pipe shows that the worker has ended.
        """
        with suppress(EOFError, ProcessLookupError):
            if self._has_started():
                pid = self.pid
                if not self._status.poll(grace):
                    os.kill(pid, signal.SIGKILL)
                if self._status.poll(GRACE_SECONDS):  # if not, the fork server has stopped
                    self.code = int(self._status.recv_bytes())
        self._status.close()

    def _has_started(self) -> bool:
        """Whether the fork server has said which process the worker is."""
        return "pid" in vars(self) or self._status.poll(GRACE_SECONDS)


class ForkServer:
    """Where workers come from. Its process starts with `start` or with the first worker."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process if it is not running; one that has died is replaced."""
        if self.process is not None and not self._has_ended():
            return
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            command = module_command(__name__, str(theirs.fileno()), *self.modules)
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
                env={**os.environ, **_ONE_THREAD},
            )
        self._socket: socket.socket = ours

    def _has_ended(self) -> bool:
        # the process never sends anything, so its socket is readable only when it has ended
        return bool(wait([self._socket], timeout=0))

    def worker(self, fds: Sequence[int]) -> ForkedProcess:
        """Fork a worker with these descriptors.

        If the fork server dies meanwhile, the worker looks like one that has died.
        """
        self.start()
        ours, theirs = Pipe(duplex=False)
        with theirs, suppress(OSError):
            socket.send_fds(self._socket, [b"+"], [theirs.fileno(), *fds])
        return ForkedProcess(ours)

    def close(self) -> None:
        """End the process at once. End its workers before, so that it can reap them."""
        if self.process is not None:
            self._socket.close()
            self.process.kill()
            self.process.wait()
            self.process = None


class ForkServerProcess:
    """The fork server from inside: a socket to its owner, and a status pipe for every child."""

    def __init__(self, owner: socket.socket, work: Callable[..., None]) -> None:
        self.owner, self.work = owner, work
        self.children: dict[int, Connection] = {}
        # the system writes a byte into this pipe when a child dies
        self.wakeup_read, self.wakeup_write = os.pipe()
        os.set_blocking(self.wakeup_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakeup_write)

    def serve(self) -> None:
        """Fork and reap until the owner closes its socket or dies."""
        while True:
            ready = wait([self.owner, self.wakeup_read])
            if self.wakeup_read in ready:
                os.read(self.wakeup_read, 4096)
                self._reap()
            if self.owner in ready:
                request, fds, _, _ = socket.recv_fds(self.owner, 1, MAX_DESCRIPTORS)
                if not request:
                    return
                self._fork(Connection(fds[0], readable=False), fds[1:])

    def _fork(self, status: Connection, fds: Sequence[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._release()
            _run_and_exit(self.work, fds)
        for fd in fds:
            os.close(fd)
        self.children[pid] = status
        _send_number(status, pid)

    def _release(self) -> None:
        """In the child: close everything that belongs to the fork server.

        Otherwise others would wait for the end of a pipe that this process keeps open.
        """
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.wakeup_read)
        os.close(self.wakeup_write)
        self.owner.close()
        for status in self.children.values():
            status.close()

    def _reap(self) -> None:
        for pid in list(self.children):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self.children.pop(pid) as status:
                    _send_number(status, os.waitstatus_to_exitcode(code))


def _send_number(status: Connection, number: int) -> None:
    with suppress(OSError):  # the other end is closed
        status.send_bytes(str(number).encode())


def _run_and_exit(work: Callable[..., None], fds: Sequence[int]) -> NoReturn:
    """All that a worker does. It exits without Python's cleanup, which is the parent's."""
    code = 1
    try:
        work(*fds)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def main(owner: str, *modules: str) -> None:
    """Import, then serve. owner: the descriptor of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns the run
    from fedloom.engines.worker import main as work

    for module in modules:
        importlib.import_module(module)
    ForkServerProcess(socket.socket(fileno=int(owner)), work).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
