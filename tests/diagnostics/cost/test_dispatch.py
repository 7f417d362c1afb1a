"""Tracked tensor memory against a case by hand; the MAC counter is tested in test_count.py."""

import torch

from fedloom.diagnostics.cost.dispatch import MemoryTracker


def test_tracked_memory_by_hand() -> None:
    x, tracker = torch.zeros(250), MemoryTracker()
    with tracker:
        y = x + 1
        z = y + 1
        del y
        w = z.view(10, 25) + 1
        del z, w
        v = x + 1
    assert [t is x for t in tracker.inputs] == [True]
    assert tracker.peak == 2 * 1000 and v.numel() == 250
