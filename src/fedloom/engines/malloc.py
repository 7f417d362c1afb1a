"""Settings of the C library's allocator, for processes that are ours: workers and the command line.

glibc returns freed blocks of more than 128 KiB to the system and fetches them again, page by page,
for the next batch. Activations are such blocks: a worker on ResNet-8 had 330,000 page faults per
round, which took a sixth of its time.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # option numbers in malloc.h
_LARGEST_THRESHOLD = 32 << 20  # the largest that glibc accepts
_KEPT_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Let this process keep up to 1 GiB of freed memory. Does nothing without glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        mallopt(_MMAP_MAX, 0)  # take larger blocks from the heap as well
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
