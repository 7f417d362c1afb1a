"""What the C library's allocator is told in processes that are ours: workers and the command line.

glibc hands blocks of more than 128 KiB back to the system when they are freed and fetches them anew, page by page, for the next
batch. Activations are such blocks: a worker on ResNet-8 took 330,000 page faults a round, a sixth of its time.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of malloc.h
_LARGEST = 32 << 20  # glibc takes no more
_KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Let the process keep up to 1 GiB of freed memory for its next batches. Elsewhere than on glibc, nothing happens."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_MMAP_MAX, 0)  # and larger ones from the heap as well
        mallopt(_TRIM_THRESHOLD, _KEPT)
