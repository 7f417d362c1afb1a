"""The work of a play, counted: multiply-accumulates, and how many samples go through each block of a model, forward and back."""

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
    """Counts of samples by block, of all models together: forward, and backward wherever a gradient comes to a block's output.

    macs: multiply-accumulates of convolutions and matrix products, as torch's FLOP counter has them, those of gradients included.
    """

    def __init__(self) -> None:
        self.macs = 0.0
        self.forward: Counter[str] = Counter()
        self.backward: Counter[str] = Counter()

    @contextmanager
    def watching(self, chains: Iterable[Chain]) -> Iterator[None]:
        """Inside, what goes through these models is counted."""
        hooks = [
            chain.block(name).register_forward_hook(partial(self._through, name))
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

    def _through(self, name: str, block: nn.Module, inputs: Any, output: Tensor) -> None:
        samples = len(output)
        self.forward[name] += samples
        if output.requires_grad:
            output.register_hook(lambda grad: self.backward.update({name: samples}))
