"""How a model is executed: the memory layout of its channels, and whether its blocks are compiled.

Both change the last bits of a result, so they are settings and never chosen by timing. Channels
last took 0.70 (ResNet-56) to 0.95 (VGG) of the time of a step on a CPU and is the default there.
Compiled blocks took 0.9 to 1.6 times as long, so they are never the default.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.models.residual import ShortcutConv

WIDE_CHANNELS = 512


def arrange(chain: Chain, layout: str, compiled: bool) -> Chain:
    """Apply a memory layout to the model, and compile its blocks if asked to; the same model.

    Each block is compiled separately, so that taps still work.
    """
    has_convolutions = any(isinstance(m, nn.Conv2d) for m in chain.modules())
    if layout == "channels_last" and has_convolutions:
        _set_channels_last(chain)
    if compiled:
        for name in chain.names:
            block = chain.block(name)
            block.forward = torch.compile(_wrapped(block.forward))
    return chain


def _set_channels_last(chain: Chain) -> None:
    _check_strides(chain)
    for tensor in (*chain.parameters(), *chain.buffers()):
        if tensor.dim() == 4:  # chain.to(memory_format=...) fails on the weights of volumes
            tensor.data = tensor.data.to(memory_format=torch.channels_last)
    chain.block(chain.names[0]).register_forward_pre_hook(_inputs_to_channels_last)
    for layer in _faster_contiguous(chain):
        layer.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        layer.register_forward_pre_hook(_inputs_to_contiguous)
        layer.register_forward_hook(_output_to_channels_last)


def _faster_contiguous(chain: Chain) -> list[nn.Conv2d]:
    """The convolutions of a wide network that are slower with channels last, on AVX-512 only.

    There, channels last takes up to twice as long over 512 channels, and a tenth longer over 256.
    With these convolutions contiguous, a step of ResNet-18 at full width takes 5 % less than with
    all of them contiguous, and one of FedMLB, which works mostly in the last blocks, 7 %.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return []
    convolutions = [m for m in chain.modules() if isinstance(m, nn.Conv2d)]
    spatial = [c for c in convolutions if c.groups == 1 and c.kernel_size != (1, 1)]
    widest = max((c.in_channels for c in spatial), default=0)
    if widest < WIDE_CHANNELS:
        return []
    return [c for c in spatial if c.in_channels >= WIDE_CHANNELS // 2]


def _check_strides(chain: Chain) -> None:
    """Reject a user's model that would damage the memory of the process; see `ShortcutConv`."""
    for name, layer in chain.named_modules():
        if not isinstance(layer, nn.Conv2d) or isinstance(layer, ShortcutConv):
            continue
        is_strided_projection = layer.kernel_size == (1, 1) and max(layer.stride) > 1
        if is_strided_projection and layer.in_channels < ShortcutConv.SAFE_CHANNELS:
            raise UserError(
                f"'{name}' is a 1x1 convolution of {layer.in_channels} channels with a stride, "
                "for which layout=channels_last can damage memory; leave that setting out"
            )


def _wrapped(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same call as a function of ours, since torch.compile skips functions of torch.

    Each wrapper has its own code object, by which torch.compile counts recompilations.
    """

    def call(*inputs: Tensor) -> Tensor:
        return forward(*inputs)

    call.__code__ = call.__code__.replace()
    return call


def _inputs_to_channels_last(block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Batches of images to channels last, like the weights; other inputs unchanged."""
    return tuple(
        x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs
    )


def _inputs_to_contiguous(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in inputs)


def _output_to_channels_last(
    layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> Tensor:
    return output.contiguous(memory_format=torch.channels_last)


def check_compiler(compiled: bool) -> None:
    """Raise if blocks are to be compiled and this machine has no C++ compiler or Python headers."""
    if not compiled:
        return
    default = "clang++" if sys.platform == "darwin" else "g++"
    compiler = os.environ.get("CXX") or default
    if shutil.which(compiler) is None:
        raise UserError(
            f"compile=true needs a C++ compiler, and there is no '{compiler}' here; "
            "install one, name it in CXX, or leave compile out"
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise UserError(
            "compile=true needs Python's C headers, which are missing here; "
            "install them (python3-dev), or leave compile out"
        )
