"""Whether what a file declares fits in memory: a few compressed bytes can declare terabytes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedloom.data.sources.errors import data_error

CHUNK = 1 << 20
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


class Stream(Protocol):
    """A file that is open for reading, plain or unpacked on the way."""

    def read(self, size: int, /) -> bytes: ...


def check_fits_in_memory(size: int, where: object, what: str) -> None:
    """Refuse what takes more than half of the free memory; the rest is needed to work with it."""
    free = free_memory()
    if free is not None and size > free // 2:
        found = f"{what} of {_gigabytes(size)}"
        expected = f"at most half of the free memory ({_gigabytes(free)})"
        remedy = "check the file, or use fewer samples or a machine with more memory"
        raise data_error(where, found, expected, remedy)


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping; None if the system does not say."""
    limits = [value for value in (_machine(), _container()) if value is not None]
    return max(0, min(limits)) if limits else None


def read_up_to(stream: Stream, limit: int) -> bytearray:
    """At most `limit` bytes, fewer at the end of the stream.

    Unlike stream.read(limit) it does not reserve memory for bytes that do not come.
    """
    data = bytearray()
    while len(data) < limit and (piece := stream.read(min(CHUNK, limit - len(data)))):
        data += piece
    return data


def _machine() -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def _container() -> int | None:
    """What a container may still use; None without such a limit."""
    try:
        names = ("memory.max", "memory.current")
        limit, used = (int((CGROUP / name).read_text(encoding="ascii")) for name in names)
    except (OSError, ValueError):
        return None
    return limit - used


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB" if size < 1e15 else f"{size:.1e} bytes"
