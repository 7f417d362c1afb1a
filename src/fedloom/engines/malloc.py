"""Settings of the C library's allocator, for processes that are ours: workers and the command line.

glibc returns freed blocks of more than 128 KiB to the system and fetches them again, page by page,
for the next batch. Activations are such blocks: a worker on ResNet-8 had 330,000 page faults per
round, which took a sixth of its time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # option numbers in malloc.h
_LARGEST_THRESHOLD = 32 << 20  # the largest that glibc accepts
_LOADING_THRESHOLD = 1 << 20
_KEPT_BYTES = 1 << 30
_MAPPED_BLOCKS = 65536  # at most, as glibc has it by itself

_keeps_blocks = False  # whether this process was told to, which glibc cannot be asked


def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB of freed memory. Does nothing without glibc."""
    global _keeps_blocks
    _keeps_blocks = True
    _set((_MMAP_THRESHOLD, _LARGEST_THRESHOLD), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT_BYTES))


def return_large_blocks() -> None:
    """Let this process return freed blocks of 32 MiB or more, as it does without our settings.

    For models whose tensors are as large as that: a heap in which they come and go has gaps that no
    other fits into. With 100 million parameters a run took twice the memory of its tensors.
    """
    _set((_MMAP_MAX, _MAPPED_BLOCKS))


@contextmanager
def blocks_returned() -> Iterator[None]:
    """Return freed blocks of 1 MiB or more for as long as this lasts, if the process keeps them.

    For loading data: what it needs in between is large, and not needed again.
    """
    if not _keeps_blocks:
        yield
        return
    _set((_MMAP_THRESHOLD, _LOADING_THRESHOLD), (_MMAP_MAX, _MAPPED_BLOCKS))
    try:
        yield
    finally:
        keep_freed_memory()


def return_free_pages() -> None:
    """Return all freed memory now, if this process keeps it; it is fetched again when needed.

    For after a round whose uploads were large: what comes next may not fit into the gaps they left.
    """
    trim = _glibc("malloc_trim")
    if _keeps_blocks and trim is not None:
        trim(0)


def _set(*options: tuple[int, int]) -> None:
    mallopt = _glibc("mallopt")
    if mallopt is not None:
        for option, value in options:
            mallopt(option, value)


def _glibc(function: str) -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), function, None)
