"""One writer per folder. The operating system releases the lock when its process ends, always."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from filelock import FileLock, Timeout

from fedloom.core.errors import UserError
from fedloom.core.regular_files import check_regular, open_regular
from fedloom.runs.durable_files import PRIVATE_FILE, file_error


class Lock:
    """Held from construction to `close`.

    The file is never deleted: otherwise two processes could lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        # not per thread: the thread that closes a folder need not be the one that opened it
        self._lock = FileLock(path, timeout=0, mode=PRIVATE_FILE, thread_local=False)
        try:
            _check_place(path)
            self._lock.acquire()
            _write_holder(path)
        except Timeout as error:
            raise UserError(
                f"{path.parent} is being written by {_holder(path)}; "
                "wait until it is done, or stop it"
            ) from error
        except OSError as error:
            self.close()
            raise file_error(path, error, UserError) from error

    def close(self) -> None:
        self._lock.release()


def _check_place(path: Path) -> None:
    """Raise if the folder is missing, which FileLock would create, or if the file is a link."""
    path.parent.stat()
    check_regular(path)


def _write_holder(path: Path) -> None:
    """Say in the file who holds the lock, for the message to the next one who wants it."""
    if os.name == "nt":
        return  # Windows lets nobody write into a locked file
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(f"process {os.getpid()} on {platform.node()}\n")


def _holder(path: Path) -> str:
    try:
        with os.fdopen(open_regular(path), "r", errors="replace") as file:
            return file.read(200).strip() or "another process"
    except OSError:
        return "another process"
