"""What SQLite does to its files, seen from inside the process.

SQLite reaches the disk through a table of functions, its VFS. Here the entries of the default
table that change files are replaced, by ctypes, with functions that first call a watcher. What the
watcher raises becomes the code that SQLite would get from a broken disk.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

Watch = Callable[[str, Path, Callable[[], Any] | None], None]  # kind, path, do half of it

_FULL, _CANNOT_OPEN, _IO_ERROR = 13, 14, 10
_CODES = {"write": 3, "sync": 4, "truncate": 6, "delete": 10}  # SQLITE_IOERR_WRITE and so on

# names stay addresses: SQLite keeps them, and reads what it has written behind them
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Vfs(Structure):
    _fields_ = [
        ("version", c_int),
        ("file_size", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
    ]


class _Methods(Structure):
    """sqlite3_io_methods; the last fields are only copied."""

    _fields_ = [
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        ("rest", c_void_p * 13),
    ]


class _File(Structure):
    _fields_ = [("methods", POINTER(_Methods))]


class _Shim:
    """The replaced functions. Connections may outlive a watcher, so the shim lives for ever."""

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self._paths: dict[int, Path] = {}  # by address of the open file
        self._tables: dict[int, _Methods] = {}  # ours, by address of SQLite's
        self._kept: list[Any] = []  # callbacks, which nothing else keeps alive
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        vfs = library.sqlite3_vfs_find(None).contents
        self._open, self._delete = _Open(vfs.open), _Delete(vfs.delete)
        vfs.open = self._pointer(_Open, self._on_open)
        vfs.delete = self._pointer(_Delete, self._on_delete)

    def _pointer(self, kind: Any, function: Callable[..., int]) -> int | None:
        callback = kind(function)
        self._kept.append(callback)
        return ctypes.cast(callback, c_void_p).value

    def _code(self, kind: str, path: Path, half: Callable[[], Any] | None = None) -> int:
        """0 to go on, or the error that SQLite shall see."""
        if self.watch is None:
            return 0
        try:
            self.watch(kind, path, half)
        except OSError as error:
            if kind == "open":
                return _CANNOT_OPEN
            full = kind == "write" and error.errno in (errno.ENOSPC, errno.EDQUOT)
            return _FULL if full else _IO_ERROR | _CODES[kind] << 8
        return 0

    def _on_open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = None if name is None else _path(name)
        if path is not None and (code := self._code("open", path)):
            return code
        code = self._open(vfs, name, file, flags, out)
        if code == 0 and path is not None:
            self._paths[file] = path
            opened = _File.from_address(file)
            opened.methods = ctypes.pointer(self._watching(opened.methods.contents))
        return int(code)

    def _on_delete(self, vfs: int, name: int, sync: int) -> int:
        return self._code("delete", _path(name)) or self._delete(vfs, name, sync)

    def _watching(self, real: _Methods) -> _Methods:
        """SQLite's table of methods, with ours for what changes a file."""
        address = ctypes.addressof(real)
        if address not in self._tables:
            write, truncate, sync = (
                _Write(real.write),
                _Truncate(real.truncate),
                _Sync(real.sync),
            )

            def on_write(file: int, data: int, size: int, at: int) -> int:
                half = lambda: write(file, data, size // 2, at)  # noqa: E731
                return self._code("write", self._paths[file], half) or write(file, data, size, at)

            def on_truncate(file: int, size: int) -> int:
                return self._code("truncate", self._paths[file]) or truncate(file, size)

            def on_sync(file: int, flags: int) -> int:
                return self._code("sync", self._paths[file]) or sync(file, flags)

            ours = _Methods.from_buffer_copy(real)
            ours.write = self._pointer(_Write, on_write)
            ours.truncate = self._pointer(_Truncate, on_truncate)
            ours.sync = self._pointer(_Sync, on_sync)
            self._tables[address] = ours
        return self._tables[address]


def _path(address: int) -> Path:
    return Path(os.fsdecode(ctypes.string_at(address)))


_shim: _Shim | None = None


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Call a function before every change that SQLite makes to a file."""
    global _shim
    if _shim is None:
        _shim = _Shim()
    _shim.watch = watch
    try:
        yield
    finally:
        _shim.watch = None
