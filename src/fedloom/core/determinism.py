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
def fork_rng(device: torch.device | None = None) -> Iterator[None]:
    """torch.random.fork_rng for the CPU and one GPU: restore their global random state afterwards.

    device: the GPU; None: the current one, if any is in use. To read the state of all GPUs would
    start those that nobody uses, and take some hundred megabytes of each.
    """
    if device is None and torch.cuda.is_available():
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        device = torch.device("cuda", torch.cuda.current_device()) if in_use else None
    with torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []):
        yield


@contextmanager
def deterministic(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Avoid nondeterministic GPU kernels where torch offers an alternative; a CPU has none.

    wanted: False lets torch take the fastest kernels and time them first (cuDNN's benchmark); a
    seed then has no single result.
    """
    if device.type != "cuda":
        yield
        return
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    torch.backends.cudnn.benchmark = not wanted
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark
