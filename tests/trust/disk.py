"""Every change of the disk that this process makes below a folder, announced before it happens.

Python's own functions and those of SQLite are wrapped. A watcher may count the steps, record them,
kill the process, or raise the OSError of a broken disk.

Not seen: the memory-mapped index of SQLite's log (`-shm`), which it rebuilds after a crash.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from trust import sqlite_files

_CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Step:
    """A change that is about to happen.

    kind     read, open (for writing), write, sync, rename, delete, mkdir or truncate
    path     the file; target: its new name
    half     does half of a write; None for other steps
    """

    kind: str
    path: Path
    target: Path | None = None
    half: Callable[[], Any] | None = None


Watch = Callable[[Step], None]


@contextmanager
def watched(folder: Path, watch: Watch) -> Iterator[None]:
    """Tell a watcher of every step below the folder."""
    inside = os.path.realpath(folder) + os.sep
    busy = False

    def tell(
        kind: str,
        path: Path,
        half: Callable[[], Any] | None = None,
        target: Path | None = None,
    ) -> None:
        nonlocal busy
        if busy or not f"{path}{os.sep}".startswith(inside):
            return
        busy = True  # what the watcher itself does is not a step
        try:
            watch(Step(kind, path, target, half))
        finally:
            busy = False

    with ExitStack() as stack:
        stack.enter_context(sqlite_files.watched(tell))
        for owner, name, replacement in _replacements(tell):
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def _replacements(tell: Callable[..., None]) -> Iterator[tuple[Any, str, Any]]:
    """The functions of Python that change files, each with one that tells first."""
    real_open = io.open

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        path = _of_handle(file) if isinstance(file, int) else _full(file)
        changes = set(mode) & set("wax+")
        tell("open" if changes else "read", path)
        opened = real_open(file, mode, *args, **options)
        return _WatchedFile(opened, path, tell) if changes else opened

    yield builtins, "open", open_file
    yield io, "open", open_file
    yield os, "open", _wrapped_open(tell)
    for name, kind in {"fsync": "sync", "fdatasync": "sync", "ftruncate": "truncate"}.items():
        yield os, name, _wrapped(getattr(os, name), kind, _of_handle, tell)
    for name, kind in {"unlink": "delete", "remove": "delete", "rmdir": "delete"}.items():
        yield os, name, _wrapped(getattr(os, name), kind, _full, tell)
    for name, kind in {"mkdir": "mkdir", "truncate": "truncate"}.items():
        yield os, name, _wrapped(getattr(os, name), kind, _full, tell)
    for name in ("replace", "rename"):
        yield os, name, _wrapped_rename(getattr(os, name), tell)
    yield os, "write", _wrapped_write(tell)


def _wrapped(
    real: Callable[..., Any], kind: str, path_of: Callable[..., Path], tell: Callable[..., None]
) -> Any:
    def call(file: Any, *args: Any, **options: Any) -> Any:
        handle = options.get("dir_fd")
        path = path_of(file) if handle is None else _of_handle(handle) / file
        tell(kind, path)
        return real(file, *args, **options)

    return call


def _wrapped_open(tell: Callable[..., None]) -> Any:
    real = os.open

    def call(file: Any, flags: int, *args: Any, **options: Any) -> int:
        handle = options.get("dir_fd")
        path = _full(file) if handle is None else _of_handle(handle) / file
        tell("open" if flags & _CHANGING_FLAGS else "read", path)
        return real(file, flags, *args, **options)

    return call


def _wrapped_rename(real: Callable[..., Any], tell: Callable[..., None]) -> Any:
    def call(old: Any, new: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> Any:
        source = _full(old) if src_dir_fd is None else _of_handle(src_dir_fd) / old
        target = _full(new) if dst_dir_fd is None else _of_handle(dst_dir_fd) / new
        tell("rename", source, target=target)
        return real(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    return call


def _wrapped_write(tell: Callable[..., None]) -> Any:
    real = os.write

    def call(handle: int, data: Any) -> int:
        tell("write", _of_handle(handle), lambda: real(handle, bytes(data)[: len(data) // 2]))
        return real(handle, data)

    return call


class _WatchedFile:
    """An open file that tells before it is written or cut."""

    def __init__(self, file: Any, path: Path, tell: Callable[..., None]) -> None:
        self._file, self._path, self._tell = file, path, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def write(self, data: Any) -> Any:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._tell("write", self._path, half)
        return self._file.write(data)

    def truncate(self, size: int | None = None) -> Any:
        self._tell("truncate", self._path)
        return self._file.truncate(size)


def _full(path: Any) -> Path:
    """The path without symbolic links, except in its last part."""
    given = Path(os.fsdecode(path))
    return given.parent.resolve() / given.name


def _of_handle(handle: Any) -> Path:
    number = handle if isinstance(handle, int) else handle.fileno()
    return Path(f"/proc/self/fd/{number}").readlink()
