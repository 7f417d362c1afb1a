"""Processes of a deployment: started in a group of their own, logged to a file, ended with it.

Flower starts further processes by name (flower-superexec, flwr-serverapp, flwr-clientapp), so the
folder of the Python that runs fedloom comes first on their PATH. They inherit the environment, and
the ServerApp sees variables that were given to the SuperLink. The SuperLink starts its SuperExec in
a session of its own, and a ServerApp whose SuperLink is gone may hang while it says goodbye. So
every process that is started here has a mark in its environment, which those that it starts
inherit: all of them are found by it and ended, also if their parent has died.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fedloom.core.errors import RunError, UserError
from fedloom.deploy.layout import private_folder
from fedloom.runs.durable_files import PRIVATE_FILE

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
MARK = "FEDLOOM_STARTED_BY"
TAIL = 15  # lines of a log that an error shows


class Process:
    """A process with its log file. As a context manager it is ended at the end of the block."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name, self.log = name, log
        self.began = time.monotonic()
        self._asked = False
        self._mark = secrets.token_hex(8)
        private_folder(log.parent)
        self._log_start = log.stat().st_size if log.exists() else 0
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)) as file:
            self._process = subprocess.Popen(
                command,
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, which Ctrl-C does not reach
                umask=0o077,  # what Flower writes is for the owner only, too
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM to it and to all processes it started; once, as it may be ending by then."""
        if not self._asked:
            self._asked = True
            self._signal(signal.SIGTERM)

    def stop(self, grace: float | None = None) -> None:
        """End it and all processes it started: ask first, then kill what is left."""
        self.ask_to_end()
        deadline = time.monotonic() + (GRACE if grace is None else grace)
        while (self.exit_code is None or self._marked()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the group of the process, and to those with its mark in other groups."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in self._marked():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _marked(self) -> list[int]:
        """The running processes with its mark; none where the system does not show environments."""
        mark = f"{MARK}={self._mark}".encode()
        return [pid for pid, environ in _environments() if mark in environ.split(b"\0")]

    def last_lines(self, count: int = TAIL) -> str:
        """The end of its log; earlier processes may have written to the same file."""
        return last_lines(self.log, count, self._log_start)

    def check_running(self) -> None:
        """Raise with the end of its log if it has ended."""
        if self.exit_code is not None:
            raise RunError(
                f"{self.name} ended with exit code {self.exit_code}; its log '{self.log}' ends:\n"
                + self.last_lines()
            )

    def wait_until(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something is true of it; raises if it ends, or if it takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            self.check_running()
            if time.monotonic() > deadline:
                raise RunError(
                    f"{self.name} {what} in {seconds:.0f} s; its log '{self.log}' ends:\n"
                    + self.last_lines()
                )
            time.sleep(0.1)


def stop_all(processes: Iterable[Process]) -> None:
    """End processes, all at the same time."""
    listed = list(processes)
    for process in listed:
        process.ask_to_end()
    deadline = time.monotonic() + GRACE
    for process in listed:
        process.stop(max(0.0, deadline - time.monotonic()))


def environment(flower_home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of Flower's processes: offline, silent, one thread, its own folder."""
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(private_folder(flower_home)),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",  # the bits of a result depend on the number of threads
        "PYTHONUNBUFFERED": "1",
        **(extra or {}),
    }


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(host: str, port: int) -> None:
    """Raise if the port is taken, or if this machine does not have that address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}; is the "
                "server running already? Stop the other program, or choose --bind"
            ) from None


def last_lines(log: Path, count: int = TAIL, start: int = 0) -> str:
    """The end of a log file, indented. start: position before which nothing is read."""
    with contextlib.suppress(OSError):
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - 20_000))
            text = file.read().decode(errors="replace")
        return "\n".join(f"  {line}" for line in text.splitlines()[-count:])
    return ""


def _environments() -> Iterator[tuple[int, bytes]]:
    """The environment of every process of this user, except of those that have ended."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), (folder / "environ").read_bytes()
