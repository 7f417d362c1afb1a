"""Stochastic depth: residual branches that are dropped at random, for a whole batch at a time.

    training     y = end(b f(x) + shortcut(x)),   b ~ Bernoulli(p), one draw per block and batch
    evaluation   y = end(p f(x) + shortcut(x))

p in (0, 1] is the probability that the branch f is kept; a block with p = 1 is left unchanged.
Reference: Huang et al., Deep Networks with Stochastic Depth, ECCV 2016, eqs. (2) and (5).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.models.layers import Residual


class BatchGate(nn.modules.dropout._DropoutNd):
    """Returns whether the branch runs for this batch: False with probability p in training.

    It is a subclass of PyTorch's dropout so that code which checks whether a model is stochastic
    finds it. It draws from the layers' generator, which the solver seeds for each phase, and on the
    CPU, so that no GPU has to synchronise.
    """

    def forward(self) -> bool:
        if not self.training:
            return True
        draw = torch.rand((), generator=torch.default_generator, device="cpu").item()
        return draw >= self.p


class StochasticDepthBlock(Residual):
    """A residual block whose branch is kept with probability `keep` in training.

    In evaluation the branch is multiplied by `keep`, its expectation.
    """

    def __init__(self, block: Residual, keep: float) -> None:
        super().__init__(block.body, block.shortcut, block.end)
        self.keep = keep
        self.gate = BatchGate(1 - keep)

    def forward(self, x: Tensor) -> Tensor:
        if not self.gate():
            return self._without_branch(x)
        if self.training:
            return super().forward(x)
        expected: Tensor = self.end(self.keep * self.body(x) + self.shortcut(x))
        return expected

    def _without_branch(self, x: Tensor) -> Tensor:
        skipped = self.shortcut(x)
        if skipped is x:  # `end` may work in place, and x belongs to the block before
            skipped = skipped.clone()
        output: Tensor = self.end(skipped)
        return output


def residual_block_names(chain: Chain) -> list[str]:
    """The full names of the residual blocks, in the order of the chain."""
    return [name for name, module in chain.named_modules() if isinstance(module, Residual)]


def add_stochastic_depth(chain: Chain, keep_probabilities: Sequence[float]) -> Chain:
    """Replace the residual blocks of the chain, in place, by blocks with stochastic depth.

    keep_probabilities: one per residual block, in order; a block with probability 1 stays as it is.
    """
    for path, keep in zip(residual_block_names(chain), keep_probabilities, strict=True):
        parent, _, name = path.rpartition(".")
        block = chain.get_submodule(path)
        assert isinstance(block, Residual)
        if keep < 1:
            setattr(chain.get_submodule(parent), name, StochasticDepthBlock(block, keep))
    return chain
