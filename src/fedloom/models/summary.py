"""What a model weighs and costs, block by block."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedloom.core.chain import Chain
from fedloom.models.layers import Shape


@dataclass(frozen=True)
class Row:
    """One block: its name, the shape of its output for one sample, its parameters and its multiply-accumulates."""

    block: str
    output: Shape
    parameters: int
    macs: int


@dataclass(frozen=True)
class Summary:
    """The blocks in order, and their sums."""

    rows: tuple[Row, ...]

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self.rows)

    @property
    def macs(self) -> int:
        return sum(row.macs for row in self.rows)


def summary(chain: Chain, shape: Shape) -> Summary:
    """Parameters and multiply-accumulates of a forward pass of one sample.

    Counted are convolutions and matrix products, half the flops that torch counts; biases, norms, activations and pooling
    are free. The count runs on a copy without numbers, unless a layer needs them.
    """
    x = torch.zeros(1, *shape, dtype=_input_type(chain))
    try:
        return _count(_without_numbers(chain), x.to("meta"))
    except RuntimeError:  # a layer of the user that has no meta kernel
        return _count(copy.deepcopy(chain).cpu(), x)


def rough_macs(chain: Chain, shape: Shape) -> int:
    """About the multiply-accumulates of a forward pass of one sample, in a moment: each weight counts for every position it meets.

    The full count is exact, and takes a second when it is the first thing that torch does without numbers.
    """
    total = 0

    def add(layer: nn.Module, inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
        nonlocal total
        found = output if isinstance(output, Tensor) else output[0]
        channels = found.shape[1 if isinstance(layer, nn.modules.conv._ConvNd) else -1]
        total += sum(p.numel() for p in layer.parameters(recurse=False) if p.dim() > 1) * (
            found.numel() // channels
        )

    counted = [m for _, m in chain.layers() if not isinstance(m, nn.Embedding)]
    hooks = [layer.register_forward_hook(add) for layer in counted]
    training = chain.training
    with torch.no_grad():
        device = next((p.device for p in chain.parameters()), torch.device("cpu"))
        chain.eval()(torch.zeros(1, *shape, dtype=_input_type(chain), device=device))
    chain.train(training)
    for hook in hooks:
        hook.remove()
    return total


def _count(chain: Chain, x: Tensor) -> Summary:
    chain.eval()  # batch norm refuses one sample when it trains
    rows = []
    with torch.no_grad():
        for name in chain.names:
            block = chain.block(name)
            with FlopCounterMode(display=False) as counter:
                x = block(x)
            parameters = sum(p.numel() for p in block.parameters())
            rows.append(Row(name, tuple(x.shape[1:]), parameters, counter.get_total_flops() // 2))
    return Summary(tuple(rows))


def _without_numbers(chain: Chain) -> Chain:
    """A copy on the meta device; handing deepcopy the tensors spares it copying them first."""
    tensors: dict[int, Tensor] = {
        id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in chain.parameters()
    }
    tensors |= {id(b): b.to("meta") for b in chain.buffers()}
    return copy.deepcopy(chain, dict[int, object](tensors))


def _input_type(chain: Chain) -> torch.dtype:
    """Whole numbers for text, else the type of the weights."""
    if any(isinstance(layer, nn.Embedding) for layer in chain.block(chain.names[0]).modules()):
        return torch.int64
    return next((p.dtype for p in chain.parameters()), torch.get_default_dtype())
