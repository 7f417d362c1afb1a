"""Python programs in processes of their own that start at once.

A new Python takes about two seconds of computing to import torch. Here one process, the server,
imports it and does nothing else; each program runs in a fork of it, with its own arguments, folder,
environment and standard streams. Nothing of fedloom is imported before the fork, so what a program
imports of it, and in which order, is as in a new Python. Where there is no safe fork (Linux has
one), programs start as usual.
"""

import array
import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

LIBRARIES = ("torch", "pydantic", "typer", "rich.table", "matplotlib.figure")
ORDER_BYTES = 1 << 20
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


class Started(Protocol):
    """A program that was started."""

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative if a signal ended it."""


Streams = tuple[IO[Any], IO[Any], IO[Any]]


class Server:
    """A process that runs programs in forks of itself, one at a time.

    prefix: words before the command that starts it. libraries: what it imports. It ends when this
    process does.
    """

    def __init__(self, prefix: Sequence[str] = (), libraries: Sequence[str] = LIBRARIES) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*prefix, sys.executable, __file__, str(theirs.fileno()), *libraries]
        with theirs:
            self._process = subprocess.Popen(
                command, env=os.environ | SINGLE_THREAD, pass_fds=[theirs.fileno()]
            )
        self._socket, self._busy = ours, False

    def close(self) -> int:
        """End the server; its exit code."""
        self._socket.close()
        return self._process.wait(60)

    def start(
        self, arguments: Sequence[str], folder: Path, env: Mapping[str, str], streams: Streams
    ) -> Started:
        """Start a program with these arguments of Python: a script, -c CODE or -m MODULE."""
        assert not self._busy, "the server runs one program at a time"
        order = json.dumps([[*arguments], str(folder), dict(env)]).encode()
        assert len(order) < ORDER_BYTES, "the environment is too large"
        handles = array.array("i", [stream.fileno() for stream in streams])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)]
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ORDER_BYTES)
        self._socket.sendmsg([order], rights)
        self._busy = True
        return self

    def wait(self, timeout: float | None = None) -> int:
        """The exit code of the program that was started last."""
        self._socket.settimeout(timeout)
        answer = self._socket.recv(ORDER_BYTES)
        assert answer, f"the server of programs has ended with {self._process.wait(60)}"
        self._busy = False
        return int(answer)


@functools.cache
def _server() -> Server:
    server = Server()
    atexit.register(server.close)
    return server


def start(
    arguments: Sequence[str], folder: Path, env: Mapping[str, str], streams: Streams
) -> Started:
    """Start a Python program with these arguments and the streams stdin, stdout and stderr."""
    if sys.platform == "linux":
        return _server().start(arguments, folder, env, streams)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=env, stdin=stdin, stdout=stdout, stderr=stderr
    )


def run(
    *arguments: object,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    server: Server | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. folder, env: where this process is, and as it is here."""
    words = [str(argument) for argument in arguments]
    begin = start if server is None else server.start
    with (
        Path(os.devnull).open() as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        program = begin(words, folder or Path.cwd(), env or os.environ, (nothing, out, err))
        code = program.wait(timeout)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


def _next_program(control: socket.socket) -> list[str]:
    """In the server: fork for each order, and report how the fork ended. Returns in a fork."""
    while True:
        order, rights, _, _ = control.recvmsg(ORDER_BYTES, socket.CMSG_SPACE(3 * 4))
        if not order:
            os._exit(0)
        handles = array.array("i", rights[0][2])
        child = os.fork()
        if child == 0:
            control.close()
            return _become(json.loads(order), handles)
        for handle in handles:
            os.close(handle)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        control.send(str(status).encode())


def _become(order: Any, handles: Sequence[int]) -> list[str]:
    """Give this process the streams, folder, environment and search path that were ordered."""
    arguments, folder, env = order
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    return list(arguments)


def _run_program(arguments: list[str]) -> None:
    """What Python does with its arguments."""
    first, *rest = arguments
    if first in ("-c", "-m"):
        sys.path.insert(0, "")
        text, *others = rest
        sys.argv = [first, *others]
        if first == "-m":
            runpy.run_module(text, run_name="__main__", alter_sys=True)
        else:
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


def _exit_code(arguments: list[str]) -> int:
    """Run the program; its traceback goes to stderr."""
    try:
        _run_program(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _main(handle: str, *libraries: str) -> None:
    control = socket.socket(fileno=int(handle))
    control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ORDER_BYTES)
    for name in libraries:
        importlib.import_module(name)
    gc.freeze()  # or every fork would copy the pages of all objects when it collects garbage
    code = _exit_code(_next_program(control))
    threading._shutdown()  # type: ignore[attr-defined] # as at the end of every Python, ...
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # ... but without freeing the libraries one object at a time


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not a program's
    _main(*sys.argv[1:])
