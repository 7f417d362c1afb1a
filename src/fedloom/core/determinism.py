"""Settings that make torch deterministic, so that one seed gives one result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one intra-op thread; restore the thread count afterwards.

    Two threads would add in a different order, and small batches gain nothing from them.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Avoid nondeterministic GPU kernels where torch offers an alternative; a CPU has none."""
    if device.type != "cuda":
        yield
        return
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark
