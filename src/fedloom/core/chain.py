"""A model as a sequence of named blocks. Methods know nothing else about a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from fedloom.core.errors import UserError, unknown_name
from fedloom.core.model_output import tensor_of


class Chain(nn.Module):
    """Named blocks applied in order; any consecutive part of the chain can be run alone.

    Blocks return a tensor; the last may return logits among other values (core/model_output.py).

    >>> import torch
    >>> chain = Chain({"body": nn.Linear(4, 3), "head": nn.Linear(3, 2)})
    >>> x = torch.ones(1, 4)
    >>> torch.equal(chain(x), chain.run(chain.run(x, until="body"), after="body"))
    True
    """

    names: tuple[str, ...]
    cut_at: tuple[str, ...] = ()  # where a model was cut into these blocks, if nobody said where

    def __init__(self, blocks: Mapping[str, nn.Module]) -> None:
        super().__init__()
        if not blocks:
            raise UserError("a chain needs at least one block; pass Chain({'model': module})")
        for name, block in blocks.items():
            if not name or is_reserved(name) or hasattr(self, name) or "." in name:
                raise UserError(
                    f"block name '{name}' is empty, reserved, or contains a dot; "
                    "choose another name for the block"
                )
            self.add_module(name, block)
        self.names = tuple(blocks)

    def block(self, name: str) -> nn.Module:
        """The block with this name; raises UserError if there is none."""
        if name not in self.names:
            raise unknown_name("block", name, self.names)
        return self.get_submodule(name)

    def between(self, after: str | None, until: str | None) -> tuple[str, ...]:
        """Names of the blocks after `after`, up to and including `until`."""
        for name in (after, until):
            if name is not None and name not in self.names:
                raise unknown_name("block", name, self.names)
        first = 0 if after is None else self.names.index(after) + 1
        last = len(self.names) if until is None else self.names.index(until) + 1
        return self.names[first:last]

    def run(self, x: Tensor, *, after: str | None = None, until: str | None = None) -> Tensor:
        """Apply the blocks after `after`, up to and including `until`, to x."""
        for name in self.between(after, until):
            x = self._modules[name](x)  # type: ignore[misc]
        return x if until in self.names[:-1] else tensor_of(x)

    def taps(self, x: Tensor) -> dict[str, Tensor]:
        """The output of every block by name, in one forward pass; the last one is the logits."""
        taps: dict[str, Tensor] = {}
        for name in self.names:
            taps[name] = x = self._modules[name](x)  # type: ignore[misc]
        taps[name] = tensor_of(x)
        return taps

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def layers(self) -> Iterator[tuple[str, nn.Module]]:
        """Full name and module of every layer that holds tensors directly."""
        for name, module in self.named_modules():
            tensors = itertools.chain(
                module.parameters(recurse=False), module.buffers(recurse=False)
            )
            if any(True for _ in tensors):
                yield name, module


def is_reserved(name: str) -> bool:
    """Whether a chain has an attribute of its own with this name, so that no block can have it.

    >>> is_reserved("layers"), is_reserved("layer1")
    (True, False)
    """
    return name == "names" or hasattr(Chain, name) or name in vars(nn.Module())
