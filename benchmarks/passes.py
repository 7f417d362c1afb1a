"""Counts work: multiply-accumulates, and the samples that pass each block, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.diagnostics.cost.dispatch import MacCounter


class Passes:
    """Samples by block over all models: forward, and backward if a gradient reaches its output.

    macs: multiply-accumulates of convolutions and matrix products, including those of the backward
    pass, as torch's FLOP counter counts them.
    """

    def __init__(self) -> None:
        self.macs = 0.0
        self.forward: Counter[str] = Counter()
        self.backward: Counter[str] = Counter()

    @contextmanager
    def watching(self, chains: Iterable[Chain]) -> Iterator[None]:
        """A context in which everything that passes through these models is counted."""
        hooks = [
            chain.block(name).register_forward_hook(partial(self._count, name))
            for chain in chains
            for name in chain.names
        ]
        try:
            with MacCounter() as meter:
                yield
        finally:
            for hook in hooks:
                hook.remove()
        self.macs += meter.macs

    def _count(self, name: str, block: nn.Module, inputs: Any, output: Tensor) -> None:
        samples = len(output)
        self.forward[name] += samples
        if output.requires_grad:
            output.register_hook(lambda grad: self.backward.update({name: samples}))
