"""Large memories of clients, a file each, in a folder next to the database.

SQLite writes what it stores twice: into its log, then into its file. For a memory of many megabytes
that is half of what a save writes. A file is written once, under a temporary name. It is made
durable and gets its own name, the checksum of its row, before the row that refers to it is
committed. A file without a row, which a crash may leave, is deleted when the run is resumed.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import weakref
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedloom.core.regular_files import check_folder, open_regular, read_regular
from fedloom.runs.durable_files import PRIVATE_FILE, PRIVATE_FOLDER, TMP_SUFFIX, sync_folder

_NAMES = re.compile(rf"[0-9a-f]{{64}}|\d+{re.escape(TMP_SUFFIX)}")
_BLOCK_BYTES = 1 << 20


class NewFile:
    """A file that no row refers to yet; deleted with this object, unless it has got its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.deletion = weakref.finalize(self, _delete_own, path, os.getpid())
        self.deletion.atexit = False  # what is left then is deleted when the run is resumed

    def seal(self, prefix: bytes) -> bytes:
        """The checksum of the prefix and the contents."""
        digest = hashlib.sha256(prefix)
        with os.fdopen(open_regular(self.path), "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.digest()

    def read(self) -> bytes:
        return read_regular(self.path)


class MemoryFiles:
    """The folder of these files; created with the first of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._numbers = folder, itertools.count()

    def write(self, data: bytes) -> NewFile:
        """A new file with these contents, not durable yet."""
        if not check_folder(self.folder):
            self.folder.mkdir(PRIVATE_FOLDER)
            sync_folder(self.folder.parent)
        path = self.folder / f"{next(self._numbers)}{TMP_SUFFIX}"
        _delete(path)  # of a process that was killed
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        new = NewFile(path)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return new

    def name(self, new: NewFile, seal: bytes) -> None:
        """Make the contents durable and give the file its name; `sync` makes that durable."""
        descriptor = open_regular(new.path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        new.path = new.path.replace(self._path(seal))
        new.deletion.detach()

    def sync(self) -> None:
        """Make the names durable."""
        sync_folder(self.folder)

    def read(self, seal: bytes) -> bytes:
        """The contents of the file of a row."""
        check_folder(self.folder)
        return read_regular(self._path(seal))

    def delete(self, seal: bytes) -> None:
        """Delete the file of a row that is no more."""
        check_folder(self.folder)
        _delete(self._path(seal))

    def keep_only(self, seals: Collection[bytes]) -> None:
        """Delete the files that belong to none of these rows, and those that a crash has left."""
        if not check_folder(self.folder):
            return
        kept = {self._path(seal).name for seal in seals}
        for path in self.folder.iterdir():
            if _NAMES.fullmatch(path.name) and path.name not in kept:
                _delete(path)

    def _path(self, seal: Any) -> Path:
        """Raises FileNotFoundError for what is no checksum: a database may come from others."""
        if not (isinstance(seal, bytes) and len(seal) == hashlib.sha256().digest_size):
            raise FileNotFoundError(errno.ENOENT, "a row without a checksum", str(self.folder))
        return self.folder / seal.hex()


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)


def _delete_own(path: Path, process: int) -> None:
    """Not in a fork, which has the same objects."""
    if os.getpid() == process:
        with suppress(OSError):
            _delete(path)
