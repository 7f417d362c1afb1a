"""The resident process of a site: it has the data in memory and answers one request at a time.

    python -m fedloom.deploy.site.worker KIT --data PATH [--state FOLDER] [--socket FILE]

It listens on a unix socket that only its own user can reach. It runs in the main thread, so that
guard.timeout can interrupt a client. Whatever arrives on the socket, it stays: garbage is answered
with an error, and a connection that breaks off is closed. It listens once its data are read.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import torch

from fedloom.core.errors import RunError, UserError, shortened
from fedloom.deploy.site import framing
from fedloom.deploy.site.settings import read_settings
from fedloom.deploy.site.site import Site
from fedloom.engines.flower import messages
from fedloom.engines.malloc import keep_freed_memory
from fedloom.runs.durable_files import PRIVATE_FOLDER
from fedloom.runs.lock import Lock

SOCKET = "worker.sock"
READ_SECONDS = 60.0  # for a message to arrive; it comes from this machine
BACKLOG = 16
_LONGEST = 100  # bytes of a socket's path; the system takes 104 to 108


def serve(site: Site, listener: socket.socket, read_seconds: float = READ_SECONDS) -> None:
    """Answer requests until the process is told to end."""
    while True:
        connection, _ = listener.accept()
        # a stranger who breaks off, or does not read the answer, must not end the worker
        with connection, suppress(OSError):
            _answer(site, connection, read_seconds)


def _answer(site: Site, connection: socket.socket, read_seconds: float) -> None:
    """Answer the one request of a connection."""
    deadline = time.monotonic() + read_seconds
    try:
        parts = framing.receive(connection, site.settings.max_bytes, deadline)
    except framing.BadFrame as problem:
        reason = f"the worker of site '{site.name}' received {problem}"
        reply = messages.error_reply(messages.NO_HEADER, reason)
    else:
        reply = site.handle(parts)
    connection.settimeout(read_seconds)
    framing.send(connection, reply)


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket at this path for this user only; the only worker that listens there."""
    _check_path(path)
    lock = Lock(path.with_suffix(".lock"))
    try:
        path.unlink(missing_ok=True)  # left by a worker that was killed: the lock says it is gone
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            before = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            listener.listen(BACKLOG)
            yield listener
    finally:
        path.unlink(missing_ok=True)
        lock.close()


def _check_path(path: Path) -> None:
    if len(os.fsencode(path)) > _LONGEST:
        raise UserError(
            f"the path of the socket, {path}, is longer than the {_LONGEST} bytes that systems "
            "take; choose another with --socket, such as /run/user/UID/fedloom/worker.sock"
        )
    folder = path.parent
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        raise UserError(
            f"{folder} is open to others, and the socket of a site is not for them; "
            f"close it with: chmod 700 {folder}"
        )


def is_listening(path: Path) -> bool:
    """Whether a worker is ready at this socket; it may be busy."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(framing.CONNECT_SECONDS)
        try:
            connection.connect(str(path))
        except OSError:
            return False
    return True


def run(kit: Path, data: Path, state: Path, path: Path) -> None:
    """Read the data of a site, then serve until SIGTERM or SIGINT."""
    signal.signal(signal.SIGTERM, _end)
    settings = read_settings(kit / "site.toml")
    torch.set_num_threads(1)
    keep_freed_memory()
    site = Site(settings, settings.source(data), state, _log)
    samples = len(site.data.samples.y)
    with listening(path) as listener:
        _log(f"site '{site.name}': {len(site.data.clients)} clients, {samples} samples; ready")
        serve(site, listener)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _log(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 ended by a signal, 1 cannot go on, 2 bad input."""
    parser = argparse.ArgumentParser(prog="fedloom.deploy.site.worker", description=__doc__)
    parser.add_argument("kit", type=Path, help="the site's start kit, with its site.toml")
    parser.add_argument("--data", type=Path, required=True, help="the site's file or folder")
    parser.add_argument("--state", type=Path, help="memories and secrets; default: KIT/state")
    parser.add_argument("--socket", type=Path, help=f"default: STATE/{SOCKET}")
    options = parser.parse_args(arguments)
    state = options.state or options.kit / "state"
    try:
        run(options.kit, options.data, state, options.socket or state / SOCKET)
    except KeyboardInterrupt:
        return 0
    except (UserError, RunError, OSError) as error:
        _log(f"error: {shortened(str(error), 2000)}")
        return 2 if isinstance(error, UserError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
