"""The nursery: one process that imports torch once and forks the workers of a pool, so that they start in milliseconds.

    python -m fedloom.engines.nursery LINE MODULE...      (an inherited socket, and modules to import ahead of the first worker)

It needs no settings: the command line starts it before it imports torch itself, and the two import side by side. It forks after
the imports and before there is any tensor or thread, which is safe; multiprocessing's forkserver does the same, but would import
the user's __main__ again. A request is one byte and the descriptors of a worker, led by a pipe on which the nursery tells its
process id and in the end its exit code.
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

MOST = 16  # descriptors in a request
GRACE = 2.0  # seconds for a worker to go by itself
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ForkedProcess:
    """A worker as its pool sees it."""

    def __init__(self, told: Connection) -> None:
        self._told = told
        self.code: int | str = "unknown"

    @cached_property
    def pid(self) -> int:
        """Its process id, once it is there; EOFError if the nursery died before."""
        return int(self._told.recv_bytes())

    def end(self) -> None:
        """Wait until it is gone, and kill it if it does not go.

        It holds the pipe as well: where no nursery is left to tell its exit code, the end of the pipe tells that it is gone.
        """
        with suppress(EOFError, ProcessLookupError):
            pid = self.pid
            if not self._told.poll(GRACE):
                os.kill(pid, signal.SIGKILL)
            self.code = int(self._told.recv_bytes())
        self._told.close()


class ForkServer:
    """Where workers come from. Its process starts with the first of them, or ahead of it when told so."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to import, unless that has begun; a process that has died is replaced."""
        if self.process is not None and not wait(
            [self._line], timeout=0
        ):  # nothing ever comes that way but its end
            return
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), *self.modules]
            env = {**os.environ, **_ONE_THREAD}
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,
                env=env,
            )
        self._line: socket.socket = ours

    def worker(self, fds: Sequence[int]) -> ForkedProcess:
        """A worker on these descriptors. If the nursery dies over it, the worker is one that has died."""
        self.start()
        ours, theirs = Pipe(duplex=False)
        with theirs, suppress(OSError):
            socket.send_fds(self._line, [b"+"], [theirs.fileno(), *fds])
        return ForkedProcess(ours)

    def close(self) -> None:
        """End the process at once. Workers are ended by their pool, before this, so that there is someone to reap them."""
        if self.process is not None:
            self._line.close()
            self.process.kill()
            self.process.wait()
            self.process = None


class ForkServerProcess:
    """Inside the process: the line to its owner, and for every child the pipe on which its fate is told."""

    def __init__(self, line: socket.socket, work: Callable[..., None]) -> None:
        self.line, self.work = line, work
        self.children: dict[int, Connection] = {}
        self.bell, self.rope = os.pipe()  # pulled by the system when a child dies
        os.set_blocking(self.rope, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.rope)

    def serve(self) -> None:
        """Fork and reap until the owner hangs up or dies."""
        while True:
            ready = wait([self.line, self.bell])
            if self.bell in ready:
                os.read(self.bell, 4096)
                self._reap()
            if self.line in ready:
                asked, fds, _, _ = socket.recv_fds(self.line, 1, MOST)
                if not asked:
                    return
                self._fork(Connection(fds[0], readable=False), fds[1:])

    def _fork(self, told: Connection, fds: Sequence[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._leave()
            _live(self.work, fds)
        for fd in fds:
            os.close(fd)
        self.children[pid] = told
        _tell(told, pid)

    def _leave(self) -> None:
        """In the child: let go of all that is the nursery's, lest others wait for an end that this process holds open."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.bell)
        os.close(self.rope)
        self.line.close()
        for told in self.children.values():
            told.close()

    def _reap(self) -> None:
        for pid in list(self.children):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                with self.children.pop(pid) as told:
                    _tell(told, os.waitstatus_to_exitcode(status))


def _tell(told: Connection, number: int) -> None:
    with suppress(OSError):  # nobody listens any more
        told.send_bytes(str(number).encode())


def _live(work: Callable[..., None], fds: Sequence[int]) -> NoReturn:
    """A worker's life. It leaves at once, past all that Python would tidy up."""
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


def main(line: str, *modules: str) -> None:
    """Import, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that owns the run
    from fedloom.engines.worker import main as work

    for module in modules:
        importlib.import_module(module)
    ForkServerProcess(socket.socket(fileno=int(line)), work).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
