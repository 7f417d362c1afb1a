"""The sequence of operations by which a process changes a folder, for trust/power.py.

Before each step of trust/disk.py the folder is compared with what it was, so nothing is missed,
however it was written. SQLite syncs the folder together with a journal or log that it has just
created (os_unix.c), which its table of functions does not show, so the recorder adds it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trust.disk import Step

Kind = Literal["name", "write", "cut", "rename", "delete", "folder", "sync", "sync folder"]


@dataclass(frozen=True)
class Operation:
    """One change of the disk. file: a number that stays with a file when it is renamed."""

    kind: Kind
    path: str = ""
    target: str = ""
    file: int = -1
    offset: int = 0
    data: bytes = b""


@dataclass
class Recorder:
    """Finds out what has changed below a folder since the step before."""

    folder: Path
    operations: list[Operation] = field(default_factory=list)
    safe: list[tuple[int, int]] = field(default_factory=list)  # operations so far, round
    names: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    _numbers: dict[int, int] = field(default_factory=dict)  # by inode
    _synced: set[int] = field(default_factory=set)
    _count: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.settle()
        self.operations.clear()  # what is there at the beginning is safe

    def __call__(self, step: Step) -> None:
        self.settle()
        if step.kind != "sync":
            return
        path = self._relative(step.path)
        if step.path.is_dir():
            self._add(Operation("sync folder", path))
        elif path in self.names:
            file = self.names[path]
            self._add(Operation("sync", path, file=file))
            if path.endswith(("-wal", "-journal")) and file not in self._synced:
                self._add(Operation("sync folder", folder_of(path)))
            self._synced.add(file)

    def reported(self, round: int) -> None:
        """The run says that a round is done, so it must survive."""
        self.safe.append((len(self.operations), round))

    def settle(self) -> None:
        """Record everything that has happened since the last call."""
        found, folders = self._look()
        for path in sorted(folders - self.folders):
            self._add(Operation("folder", path))
        self.folders = folders
        moved = self._gone(found)
        for path, file in found.items():
            self.contents.setdefault(file, b"")
            if self.names.get(path) != file and path not in moved:
                self._add(Operation("name", path, file=file))
            self._compare(path, file)
        self.names = found

    def _gone(self, found: dict[str, int]) -> set[str]:
        """Record the names that are no longer what they were; the new names of renamed files."""
        moved = set()
        for path, file in self.names.items():
            new = next((p for p, f in found.items() if f == file), None)
            if new == path:
                continue
            if new is not None:
                self._add(Operation("rename", path, new, file))
                moved.add(new)
            elif path not in found:
                self._add(Operation("delete", path, file=file))
        return moved

    def _look(self) -> tuple[dict[str, int], set[str]]:
        found: dict[str, int] = {}
        folders = set()
        for place, below, files in os.walk(self.folder):
            folders |= {self._relative(Path(place) / name) for name in below}
            for name in files:
                if name != "lock" and not name.endswith("-shm"):
                    path = Path(place) / name
                    found[self._relative(path)] = self._number(path)
        alive = set(found.values())
        self._numbers = {inode: n for inode, n in self._numbers.items() if n in alive}
        return found, folders

    def _number(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._numbers:
            self._numbers[inode] = next(self._count)
        return self._numbers[inode]

    def _compare(self, path: str, file: int) -> None:
        before, after = self.contents[file], (self.folder / path).read_bytes()
        if before == after:
            return
        if len(after) < len(before):
            self._add(Operation("cut", path, file=file, offset=len(after)))
            before = before[: len(after)]
        if before != after:
            pairs = enumerate(zip(before, after, strict=False))
            start = next((i for i, (one, other) in pairs if one != other), len(before))
            end = len(after)
            while len(before) == len(after) and before[end - 1] == after[end - 1]:
                end -= 1
            self._add(Operation("write", path, file=file, offset=start, data=after[start:end]))
        self.contents[file] = after

    def _add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _relative(self, path: Path) -> str:
        relative = str(path.resolve().relative_to(self.folder.resolve()))
        return "" if relative == "." else relative


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]
