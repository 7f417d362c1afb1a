"""Slimmed sub-networks: a model at a fraction of its width, sharing the weights of the full model.

A sub-network uses the first channels of every layer, as slices of the full weights, so gradients
flow into these slices. The blocks' own code runs on a copy of the layers that holds no values and
gets the slices through `functional_call`. A slimmed batch norm normalises by batch statistics and
leaves the full model's running statistics unchanged; a group norm keeps its number of groups.
References: Yu et al., Slimmable Neural Networks, ICLR 2019; Yang et al., GradAug, NeurIPS 2020.
"""

from __future__ import annotations

import copy
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.model_output import tensor_of
from fedloom.models.width_tracing import (
    CONVOLUTIONS,
    SLIMMABLE_LAYERS,
    Kept,
    KeptChannels,
    TracedLayer,
    kept_channels,
    sliced,
    slimmed_channels,
    slimming_problem,
)


class WeightSlice(NamedTuple):
    """A slice of one weight of the full model."""

    path: str  # the weight's name within its block
    layer: nn.Module  # of the full model
    weight: str  # its name within the layer
    kept: tuple[Kept, ...]  # of each dimension


class _Cache(NamedTuple):
    sizes: tuple[int, ...]  # every number of channels that occurs in the chain
    subnetworks: dict[tuple[int, ...], SubNetwork]  # by the channels kept of each size


class SubNetworks:
    """Makes sub-networks of chains, and caches them.

    Widths that keep the same numbers of channels share a sub-network. Chains are held weakly.
    """

    def __init__(self) -> None:
        self._caches: WeakKeyDictionary[Chain, _Cache] = WeakKeyDictionary()

    def __call__(self, chain: Chain, x: Tensor, width: float) -> SubNetwork:
        """The sub-network of this width. x: samples to trace it with; images may vary in size."""
        if chain not in self._caches:
            widths = {size for p in chain.parameters() for size in p.shape[:2]}
            self._caches[chain] = _Cache(tuple(widths), {})
        sizes, subnetworks = self._caches[chain]
        kept = tuple(slimmed_channels(size, width) for size in sizes)
        if kept not in subnetworks:
            subnetworks[kept] = SubNetwork(chain, x, width)
        return subnetworks[kept]


class SubNetwork:
    """A chain at a fraction of its width, in training mode. Like a chain it can be run in parts.

    channels: for every block, the channels that are left of its output.
    """

    channels: dict[str, KeptChannels]

    def __init__(self, chain: Chain, x: Tensor, width: float) -> None:
        can_be_slimmed(chain, width)
        self._twin = _on_cpu(copy.deepcopy(chain)).eval()  # in evaluation mode nothing is drawn
        try:
            with torch.no_grad():
                self._trace(chain, torch.zeros(1, *x.shape[1:], dtype=x.dtype), width)
                self.run(x.new_zeros(2, *x.shape[1:]))  # raises if shapes do not fit
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"the model does not run at width {width:g} ({reason}); "
                "choose width 1 or another model"
            ) from error
        if self.channels[chain.names[-1]].kept is not None:
            raise UserError(
                f"the model loses outputs at width {width:g}; "
                "make its last layer a linear layer or a convolution"
            )
        self._twin.to("meta").train()

    def _trace(self, chain: Chain, x: Tensor, width: float) -> None:
        """Trace the copy, and record what every layer and the output of every block keep."""
        last = _last_layer(chain)
        traced = {
            name: TracedLayer(layer, 1.0 if name == last else width)
            for name, layer in self._twin.named_modules()
            if isinstance(layer, SLIMMABLE_LAYERS)
        }
        for name, layer in traced.items():
            self._twin.set_submodule(name, layer)
        self.channels = self._kept_after_blocks(x)
        self._slices: dict[str, list[WeightSlice]] = {name: [] for name in chain.names}
        for name, layer in traced.items():
            self._twin.set_submodule(name, layer.slimmed())
            block, _, inside = name.partition(".")
            for weight, kept in layer.kept.items():
                path = f"{inside}.{weight}".lstrip(".")
                full = chain.get_submodule(name)
                self._slices[block].append(WeightSlice(path, full, weight, kept))

    def _kept_after_blocks(self, x: Tensor) -> dict[str, KeptChannels]:
        """What is left of every block's output.

        Where all channels are left, the last layer with weights tells their dimension: the last one
        of text (batch, time, channels), which layers other than convolutions and norms make.
        """
        channels, channels_last = {}, True
        for name, tap in self._twin.taps(x).items():
            for layer in self._twin.block(name).modules():
                if isinstance(layer, TracedLayer):
                    channels_last = layer.kind.dim == -1
            dim = 2 if channels_last and tap.dim() == 3 else 1
            channels[name] = kept_channels(tap, dim)
        return channels

    def kept_of(self, features: Tensor, block: str) -> Tensor:
        """The kept channels of the full model's features after this block."""
        return sliced(features, *self.channels[block])

    def run(self, x: Tensor, *, after: str | None = None, until: str | None = None) -> Tensor:
        """Apply the slimmed blocks after `after` up to and including `until`."""
        for name in self._twin.between(after, until):
            weights = {
                path: _sliced_weight(getattr(layer, weight), kept)
                for path, layer, weight, kept in self._slices[name]
            }
            x = functional_call(self._twin.block(name), weights, (x,))
        return x if until in self._twin.names[:-1] else tensor_of(x)


def _last_layer(chain: Chain) -> str | None:
    """The name of the last convolution or linear layer, which keeps all its outputs."""
    last = None
    for name, layer in chain.named_modules():
        if isinstance(layer, (*CONVOLUTIONS, nn.Linear)):
            last = name
    return last


def _on_cpu(chain: Chain) -> Chain:
    """The chain on the CPU; a chain on the meta device gets ones, since tracing needs no values."""
    if any(p.is_meta for p in chain.parameters()):
        chain.to_empty(device="cpu")
        for t in chain.state_dict().values():
            t.fill_(1)
    return chain.cpu()


def _sliced_weight(weight: Tensor, kept: tuple[Kept, ...]) -> Tensor:
    for dim, index in enumerate(kept):
        weight = sliced(weight, dim, index)
    return weight


def can_be_slimmed(chain: Chain, width: float) -> bool:
    """True if every layer can be slimmed to the width; otherwise a UserError names the layer."""
    for name, layer in chain.layers():
        problem = slimming_problem(layer, width)
        if problem is not None:
            raise UserError(
                f"model at width {width:g}: layer '{name}' {problem}; "
                "choose a model without such layers, for example a resnet or vgg9"
            )
    return True
