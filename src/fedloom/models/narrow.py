"""A chain at part of its width: the first channels of every layer, as slices of the full model's own weights.

The blocks run as they are written, on a copy of their layers that holds no numbers and is lent the slices; gradients reach the full
weights, inside the slices. A narrow batch norm normalises by the batch and leaves the running statistics of the full model alone;
a group norm keeps its number of groups.
"""

from __future__ import annotations

import copy
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.models.width_tracing import (
    LAYERS,
    Features,
    Index,
    Mark,
    channels,
    features,
    objection,
    picked,
)

Piece = tuple[
    str, nn.Module, str, tuple[Index, ...]
]  # a weight's name in its block, its layer, its name there, what is kept


class Narrow:
    """Chains at part of their width. What a chain keeps is worked out once for all widths that keep the same."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[
            Chain, tuple[tuple[int, ...], dict[tuple[int, ...], Slim]]
        ] = WeakKeyDictionary()

    def __call__(self, chain: Chain, x: Tensor, width: float) -> Slim:
        """The chain at this width, for samples like x; of images, other sizes may follow."""
        if chain not in self._known:
            self._known[chain] = (
                tuple({size for p in chain.parameters() for size in p.shape[:2]}),
                {},
            )
        sizes, slims = self._known[chain]
        left = tuple(channels(size, width) for size in sizes)
        if left not in slims:
            slims[left] = Slim(chain, x, width)
        return slims[left]


class Slim:
    """A chain at part of its width, in training; any stretch of it can be run on its own, as with the chain."""

    def __init__(self, chain: Chain, x: Tensor, width: float) -> None:
        cuttable(chain, width)
        self._twin = _on_cpu(copy.deepcopy(chain)).eval()  # which draws nothing
        try:
            with torch.no_grad():
                self._mark(chain, torch.zeros(1, *x.shape[1:], dtype=x.dtype), width)
                self.run(x.new_zeros(2, *x.shape[1:]))  # or it says what does not fit
        except (RuntimeError, ValueError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"the model does not run at width {width:g} ({why}); choose width 1 or another model"
            ) from error
        if self.features[chain.names[-1]].kept is not None:
            raise UserError(
                f"the model loses outputs at width {width:g}; let its last layer be a linear layer or a convolution"
            )
        self._twin.to("meta").train()

    def _mark(self, chain: Chain, x: Tensor, width: float) -> None:
        """Send marks through the copy, and note what every layer and every block keeps."""
        last = [
            n for n, layer in chain.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))
        ][-1:]
        layers = {n: layer for n, layer in self._twin.named_modules() if isinstance(layer, LAYERS)}
        marks = {n: Mark(layer, 1.0 if n in last else width) for n, layer in layers.items()}
        for name, mark in marks.items():
            self._twin.set_submodule(name, mark)
        self.features: dict[str, Features] = {
            name: features(tap) for name, tap in self._twin.taps(x).items()
        }
        self._pieces: dict[str, list[Piece]] = {name: [] for name in chain.names}
        for name, mark in marks.items():
            self._twin.set_submodule(name, mark.narrowed())
            block, _, inside = name.partition(".")
            for own, kept in mark.kept.items():
                self._pieces[block].append(
                    (f"{inside}.{own}".lstrip("."), chain.get_submodule(name), own, kept)
                )

    def cut(self, x: Tensor, behind: str) -> Tensor:
        """Of the full model's features behind a block, the channels that are left."""
        return picked(x, *self.features[behind])

    def run(self, x: Tensor, *, after: str | None = None, until: str | None = None) -> Tensor:
        """The narrow blocks behind `after` up to `until`, applied to x."""
        for name in self._twin.between(after, until):
            lent = {
                path: _sliced(getattr(layer, own), kept)
                for path, layer, own, kept in self._pieces[name]
            }
            x = functional_call(self._twin.block(name), lent, (x,))
        return x


def _on_cpu(chain: Chain) -> Chain:
    """The chain on the CPU; one without numbers gets ones, which marks need no more than a number."""
    if any(p.is_meta for p in chain.parameters()):
        chain.to_empty(device="cpu")
        for t in chain.state_dict().values():
            t.fill_(1)
    return chain.cpu()


def _sliced(weight: Tensor, kept: tuple[Index, ...]) -> Tensor:
    for dim, index in enumerate(kept):
        weight = picked(weight, dim, index)
    return weight


def cuttable(chain: Chain, width: float) -> bool:
    """True; or raises, in a sentence, if a layer of the chain cannot be cut to the width."""
    for name, layer in chain.layers():
        if (why := objection(layer, width)) is not None:
            remedy = "choose a model without such layers, a resnet or vgg9 for example"
            raise UserError(f"model at width {width:g}: layer '{name}' {why}; {remedy}")
    return True
