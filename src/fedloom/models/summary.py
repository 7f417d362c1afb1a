"""Parameters and multiply-accumulates (MACs) of a model, block by block."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fedloom.core.chain import Chain
from fedloom.models.layers import Shape


@dataclass(frozen=True)
class BlockSummary:
    """One block: its name, its output shape for one sample, its parameters and its MACs."""

    name: str
    output: Shape
    parameters: int
    macs: int


@dataclass(frozen=True)
class Summary:
    """The blocks in order, and their sums."""

    blocks: tuple[BlockSummary, ...]

    @property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def macs(self) -> int:
        return sum(block.macs for block in self.blocks)


def summary(chain: Chain, shape: Shape) -> Summary:
    """Parameters and MACs of the forward pass of one sample, for every block.

    Convolutions and matrix products count, as half of the FLOPs that torch counts; biases, norms,
    activations and pooling are free. The count runs on a copy on the meta device, or on the CPU if
    a layer has no meta kernel.
    """
    x = torch.zeros(1, *shape, dtype=_input_dtype(chain))
    try:
        return _count(_copy_on_meta(chain), x.to("meta"))
    except RuntimeError:  # a user's layer without a meta kernel
        return _count(copy.deepcopy(chain).cpu(), x)


def rough_macs(chain: Chain, x: Tensor) -> int:
    """Approximate MACs of the forward pass of these samples: weights times output positions.

    It takes milliseconds, while the exact `summary` takes a second the first time a process uses
    the meta device. The two agree for dense, convolutional and LSTM layers without groups.
    """
    total = 0

    def add(layer: nn.Module, inputs: object, output: Any) -> None:
        nonlocal total
        weights = sum(p.numel() for p in layer.parameters(recurse=False) if p.dim() > 1)
        total += weights * _positions(layer, output)

    counted = [layer for _, layer in chain.layers() if not isinstance(layer, nn.Embedding)]
    hooks = [layer.register_forward_hook(add) for layer in counted]
    training = chain.training
    with torch.no_grad():
        chain.eval()(x)
    chain.train(training)
    for hook in hooks:
        hook.remove()
    return total


def _positions(layer: nn.Module, output: Any) -> int:
    """How many times a layer has used its weights, by the first tensor that it returned."""
    features = _first_tensor(output)
    if features is None or not features.numel():
        return 0
    channel_dim = 1 if isinstance(layer, nn.modules.conv._ConvNd) else -1
    return features.numel() // features.shape[channel_dim] if features.dim() else 1


def _first_tensor(output: Any) -> Tensor | None:
    """The output itself, or the first tensor in a tuple, a dict or an object, if there is one."""
    if isinstance(output, Tensor):
        return output
    is_collection = isinstance(output, (tuple, list, Mapping))
    parts = output if is_collection else getattr(output, "__dict__", {})
    values = parts.values() if isinstance(parts, Mapping) else parts
    return next((v for v in values if isinstance(v, Tensor)), None)


def _count(chain: Chain, x: Tensor) -> Summary:
    chain.eval()  # in training mode batch norm rejects a batch of one sample
    blocks = []
    with torch.no_grad():
        for name in chain.names:
            block = chain.block(name)
            with FlopCounterMode(display=False) as counter:
                x = block(x)
            parameters = sum(p.numel() for p in block.parameters())
            macs = counter.get_total_flops() // 2
            blocks.append(BlockSummary(name, tuple(x.shape[1:]), parameters, macs))
    return Summary(tuple(blocks))


def _copy_on_meta(chain: Chain) -> Chain:
    """A copy on the meta device, made without first copying the values."""
    # deepcopy takes from its memo what it holds already, so the tensors are never duplicated.
    memo: dict[int, Tensor] = {
        id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in chain.parameters()
    }
    memo |= {id(b): b.to("meta") for b in chain.buffers()}
    return copy.deepcopy(chain, dict[int, object](memo))


def _input_dtype(chain: Chain) -> torch.dtype:
    """Integers if the first block embeds text, else the dtype of the weights."""
    first_block = chain.block(chain.names[0])
    if any(isinstance(layer, nn.Embedding) for layer in first_block.modules()):
        return torch.int64
    return next((p.dtype for p in chain.parameters()), torch.get_default_dtype())
