"""How a model is carried out, not what it is: where its channels lie in memory, and whether its blocks are compiled.

Both change a result in its last bits, so they are settings and never chosen by timing. Channels last took 0.70 (ResNet-56) to
0.95 (VGG) of the time of a step on a CPU and is the default there. Compiled blocks took 0.9 to 1.6 and are nobody's.
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

WIDE_CHANNELS = 512  # channels


def arrange(chain: Chain, layout: str, compiled: bool) -> Chain:
    """The same model, its channels last where they are asked for, and every block compiled by itself, so that taps stay."""
    if layout == "channels_last" and any(isinstance(m, nn.Conv2d) for m in chain.modules()):
        _check_strides(chain)
        chain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        chain.block(chain.names[0]).register_forward_pre_hook(_channels_last)
        for layer in _wide(chain):
            layer.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            layer.register_forward_pre_hook(_contiguous)
            layer.register_forward_hook(_back)
    if compiled:
        for name in chain.names:
            block = chain.block(name)
            block.forward = torch.compile(_through(block.forward))
    return chain


def _wide(chain: Chain) -> list[nn.Conv2d]:
    """The convolutions of a wide net for which channels last is the slower layout, which is so with AVX-512 only.

    Over 512 channels it takes up to twice as long there, over 256 a tenth longer. With these left as they are, a step of ResNet-18
    at full width takes 5 % less than with all of it contiguous, and one of FedMLB, most of whose work is in the last blocks, 7 %.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return []
    found = [
        m
        for m in chain.modules()
        if isinstance(m, nn.Conv2d) and m.groups == 1 and m.kernel_size != (1, 1)
    ]
    widest = max((c.in_channels for c in found), default=0)
    return (
        [c for c in found if c.in_channels >= WIDE_CHANNELS // 2] if widest >= WIDE_CHANNELS else []
    )


def _check_strides(chain: Chain) -> None:
    """Refuse a model of the user's that would damage the memory of the process; `ShortcutConv` says how."""
    for name, layer in chain.named_modules():
        small = (
            isinstance(layer, nn.Conv2d)
            and not isinstance(layer, ShortcutConv)
            and layer.kernel_size == (1, 1)
        )
        if small and max(layer.stride) > 1 and layer.in_channels < ShortcutConv.SAFE_CHANNELS:
            what = f"'{name}' convolves single pixels of {layer.in_channels} channels with a stride"
            raise UserError(
                f"{what}, for which layout=channels_last can damage memory; leave it out"
            )


def _through(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same call as a function of ours, which torch does not skip, with a code of its own, which torch counts by."""

    def call(*inputs: Tensor) -> Tensor:
        return forward(*inputs)

    call.__code__ = call.__code__.replace()
    return call


def _channels_last(block: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Batches of images as the weights lie; all else as it is."""
    return tuple(
        x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs
    )


def _contiguous(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous() for x in inputs)


def _back(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output.contiguous(memory_format=torch.channels_last)


def check_compiler(compiled: bool) -> None:
    """Refuse to compile where there is nothing to compile with."""
    if not compiled:
        return
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        raise UserError(
            f"compile=true needs a C++ compiler, and there is no '{name}' here; install one, name it in CXX, or leave it"
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise UserError(
            "compile=true needs Python's C headers, which are not here; install them (python3-dev), or leave it"
        )
