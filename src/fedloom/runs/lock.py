"""One writer per folder. The operating system releases the lock when its process ends, always."""

from __future__ import annotations

import fcntl
import os
import platform
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.runs.durable_files import file_error


class Lock:
    """Held from construction to `close`.

    The file is never deleted: otherwise two processes could lock two files of the same name.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("a+")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {platform.node()}\n")
            self._file.flush()
        except BlockingIOError as error:
            raise self._in_use(path) from error
        except OSError as error:
            raise file_error(path, error, UserError) from error

    def _in_use(self, path: Path) -> UserError:
        with self._file as file:
            file.seek(0)
            holder = file.read(200).strip() or "another process"
        return UserError(
            f"{path.parent} is being written by {holder}; wait until it is done, or stop it"
        )

    def close(self) -> None:
        self._file.close()
