"""Files that survive a crash, and errors that say what to do about a disk.

A file is written under a temporary name, synced, and renamed, so that it is whole or not there.
Links, pipes and devices in place of a file are errors: a run folder may come from someone else.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from fedloom.core.errors import RunError, UserError
from fedloom.core.regular_files import (
    NOT_REGULAR,
    NotRegular,
    check_regular,
    open_regular,
    read_regular,
)
from fedloom.core.sealed_json import seal, sha256, unseal

__all__ = [
    "PRIVATE_FILE",
    "PRIVATE_FOLDER",
    "TMP_SUFFIX",
    "file_error",
    "read_if_exists",
    "seal",
    "sha256",
    "sync_folder",
    "unseal",
    "write_durably",
]

TMP_SUFFIX = ".tmp"
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700  # a run holds the clients' models: for its owner only

_DISK_FULL = "free some space, then resume (the last checkpoint is intact)"
_NO_ACCESS = "change its permissions, or choose another folder"
_MISSING = "put back the folder it belongs in, or choose another"
_REMEDIES = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EROFS: _NO_ACCESS,
    errno.EACCES: _NO_ACCESS,
    errno.EPERM: _NO_ACCESS,
    errno.ENOENT: _MISSING,
    errno.ENOTDIR: _MISSING,
    NOT_REGULAR: "fedloom did not put it there: find out who did, then delete it",
}
_OTHER_REMEDY = "check the disk, then resume (the last checkpoint is intact)"


def file_error(
    path: Path, error: OSError, kind: type[RunError] | type[UserError] = RunError
) -> RunError | UserError:
    """The error for a file that could not be read or written: which file, why, and what to do.

    >>> print(file_error(Path("run/lock"), OSError(errno.EROFS, "Read-only file system")))
    run/lock: read-only file system; change its permissions, or choose another folder
    """
    remedy = _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)
    reason = (error.strerror or str(error)).lower()
    return kind(f"{path}: {reason}; {remedy}")


def write_durably(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Put the whole file in place, or leave what was there.

    After this call, a power cut does not lose it. mode: who may read it, less what the umask says.
    """
    temporary = path.with_name(path.name + TMP_SUFFIX)
    try:
        check_regular(path)
        _write_new(temporary, data, mode)
        temporary.replace(path)
        sync_folder(path.parent)
    except NotRegular as error:
        raise file_error(Path(error.filename), error) from error
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise file_error(path, error) from error


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that is new: a half-written one, which a crash has left, is deleted before."""
    if check_regular(path):
        path.unlink()
    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; syncing a file does not."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows, where a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_if_exists(path: Path) -> bytes | None:
    """The bytes of a file, or None if there is no such file."""
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_error(path, error) from error
