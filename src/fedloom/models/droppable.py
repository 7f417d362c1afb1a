"""Residual blocks whose branch is left out of some batches (stochastic depth)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.models.layers import Residual


class Gate(nn.modules.dropout._DropoutNd):
    """Open or shut for a whole batch, shut with probability p in training; a dropout to whoever asks if a model draws.

    It draws from the generator of the layers, which the solver seeds for each phase, and on the CPU, so that no device waits.
    """

    def forward(self) -> bool:
        return (
            not self.training
            or torch.rand((), generator=torch.default_generator, device="cpu").item() >= self.p
        )


class Droppable(Residual):
    """end(body(x) + shortcut(x)), or end(shortcut(x)) where the gate is shut; in evaluation end(keep body(x) + shortcut(x))."""

    def __init__(self, block: Residual, keep: float) -> None:
        super().__init__(block.body, block.shortcut, block.end)
        self.keep = keep
        self.gate = Gate(1 - keep)

    def forward(self, x: Tensor) -> Tensor:
        if not self.gate():
            through = self.shortcut(x)
            alone: Tensor = self.end(
                through.clone() if through is x else through
            )  # `end` may overwrite what it gets
            return alone
        if self.training:
            return super().forward(x)
        expected: Tensor = self.end(self.keep * self.body(x) + self.shortcut(x))
        return expected


def branches(chain: Chain) -> list[str]:
    """The names of the residual blocks, in the order of the chain."""
    return [name for name, module in chain.named_modules() if isinstance(module, Residual)]


def droppable(chain: Chain, keeps: Sequence[float]) -> Chain:
    """The same chain with blocks that are kept with these probabilities; one that is always kept stays as it is."""
    for path, keep in zip(branches(chain), keeps, strict=True):
        parent, _, name = path.rpartition(".")
        block = chain.get_submodule(path)
        assert isinstance(block, Residual)
        if keep < 1:
            setattr(chain.get_submodule(parent), name, Droppable(block, keep))
    return chain
