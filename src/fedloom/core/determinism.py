"""Exact mode: what torch must be told so that one seed gives one result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes on one intra-op thread; two sum in another order, and gain small batches nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Inside, kernels of a GPU that give other bits each time are avoided where there is a choice; a CPU has none of these."""
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
