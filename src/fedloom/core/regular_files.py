"""Opens regular files only: nothing that blocks, never ends, or leads elsewhere.

A folder that came from someone else may hold a link to another file of the user, a pipe that never
answers, or a device. `open_regular` follows no link, does not wait, and checks what it has opened.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# not every platform has these; where one is missing, the checks before and after opening remain
_SAFELY = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
NOT_REGULAR = errno.ELOOP  # the error number of NotRegular, as O_NOFOLLOW raises it


class NotRegular(OSError):
    """There is something else in place of a regular file or of a real folder."""

    def __init__(self, path: Path, mode: int, wanted: str = "a regular file") -> None:
        super().__init__(NOT_REGULAR, f"it is {kind_of(mode)}, not {wanted}", str(path))


def kind_of(mode: int) -> str:
    """What a file is, from its mode.

    >>> kind_of(stat.S_IFIFO | 0o644)
    'a named pipe'
    """
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def check_regular(path: Path) -> bool:
    """Whether the file exists; raises NotRegular if it does and is not a regular file."""
    return _check(path, stat.S_IFREG)


def check_folder(path: Path) -> bool:
    """Whether the folder exists; raises NotRegular if it does and is not a real folder."""
    return _check(path, stat.S_IFDIR)


def _check(path: Path, wanted: int) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_IFMT(mode) != wanted:
        raise NotRegular(path, mode, kind_of(wanted).replace("a folder", "a real folder"))
    return True


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """The descriptor of a regular file; raises NotRegular for anything else, links included."""
    check_regular(path)  # before opening: to open a device or a socket can itself have an effect
    descriptor = os.open(path, flags | _SAFELY, mode)
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise NotRegular(path, found)
    return descriptor


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()
