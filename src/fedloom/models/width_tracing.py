"""What each layer keeps of itself at part of its width, found by sending marks through a model: NaN is a channel that is gone.

Layers are replaced by marks, all else runs as it is written: so residuals, branches side by side and flattened images need no
rules of their own. A layer of weights gives its first channels and takes those of its inputs that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.select import BATCH_NORMS
from fedloom.models.residual import Pad

EIGHT = 8
Index = int | Tensor | None  # what is kept of a dimension: the first so many, these, or all


def channels(count: int, width: float) -> int:
    """How many channels are left: a multiple of eight, as in slimmable networks; of fewer than sixteen, the plain share.

    >>> [channels(count, 0.8) for count in (6, 16, 32, 128)]
    [5, 16, 24, 104]
    """
    if count < 2 * EIGHT or width == 1:
        return max(1, round(count * width))
    left = max(1, int(count * width + EIGHT / 2) // EIGHT * EIGHT)
    return min(count, left + EIGHT if left < 0.9 * count * width else left)


def picked(t: Tensor, dim: int, kept: Index) -> Tensor:
    """What is kept of a dimension."""
    if kept is None:
        return t
    return (
        t.narrow(dim, 0, kept) if isinstance(kept, int) else t.index_select(dim, kept.to(t.device))
    )


class Features(NamedTuple):
    """What is left of features: the dimension of their channels, and which of them."""

    dim: int
    kept: Index


def features(tap: Tensor) -> Features:
    """As the marks say; where all channels are left, text has them last."""
    for dim in range(1, tap.dim()):
        there = _there(tap, dim)
        if 0 < len(there) < tap.shape[dim]:
            return Features(dim, _compact(there, tap.shape[dim]))
    if tap.isnan().any():
        raise RuntimeError("a layer mixes channels that are left with others that are not")
    return Features(2 if tap.dim() == 3 else 1, None)


def _there(x: Tensor, dim: int) -> Tensor:
    """The channels that are not gone."""
    return (~x.isnan().movedim(dim, 0).flatten(1).any(1)).nonzero().flatten()


def _compact(index: Tensor, size: int) -> Index:
    if len(index) == size:
        return None
    return len(index) if torch.equal(index, torch.arange(len(index))) else index


Keeps = Callable[
    [Any, Tensor, Tensor], dict[str, tuple[Tensor, ...]]
]  # (layer, inputs, outputs) -> what its weights keep


def _dense(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> dict[str, tuple[Tensor, ...]]:
    return {"weight": (outputs, inputs), "bias": (outputs,)}


def _norm(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> dict[str, tuple[Tensor, ...]]:
    return {"weight": (inputs,), "bias": (inputs,)}


def _embedding(
    layer: nn.Embedding, inputs: Tensor, outputs: Tensor
) -> dict[str, tuple[Tensor, ...]]:
    return {"weight": (torch.arange(layer.num_embeddings), outputs)}


def _lstm(layer: nn.LSTM, inputs: Tensor, outputs: Tensor) -> dict[str, tuple[Tensor, ...]]:
    gates = torch.cat([gate * layer.hidden_size + outputs for gate in range(4)])
    kept: dict[str, tuple[Tensor, ...]] = {}
    for number in range(layer.num_layers):
        kept |= {
            f"weight_ih_l{number}": (gates, outputs if number else inputs),
            f"weight_hh_l{number}": (gates, outputs),
        }
        kept |= {f"bias_ih_l{number}": (gates,), f"bias_hh_l{number}": (gates,)}
    return kept


def _nothing(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> dict[str, tuple[Tensor, ...]]:
    return {}


class Kind(NamedTuple):
    """A kind of layer: what its weights keep, and the dimension of its channels."""

    keeps: Keeps
    dim: int


KINDS: dict[type[nn.Module], Kind] = {
    nn.Conv1d: Kind(_dense, 1),
    nn.Conv2d: Kind(_dense, 1),
    nn.Linear: Kind(_dense, -1),
    nn.Embedding: Kind(_embedding, -1),
    nn.LSTM: Kind(_lstm, -1),
    BATCH_NORMS[0]: Kind(_norm, 1),
    nn.GroupNorm: Kind(_norm, 1),
    Pad: Kind(_nothing, 1),
}
LAYERS: tuple[type[nn.Module], ...] = tuple(KINDS)


def objection(layer: nn.Module, width: float) -> str | None:
    """Why a layer that holds tensors cannot be cut to the width, or None."""
    if not isinstance(layer, LAYERS):
        return f"is a {type(layer).__name__}, of which no part can be taken"
    if isinstance(layer, (nn.Conv1d, nn.Conv2d)) and layer.groups > 1:
        return f"is a convolution in {layer.groups} groups, of which no part can be taken"
    if isinstance(layer, nn.LSTM) and (layer.bidirectional or layer.proj_size):
        return "is an LSTM with two directions or a projection, of which no part can be taken"
    if (
        isinstance(layer, nn.GroupNorm)
        and (left := channels(layer.num_channels, width)) % layer.num_groups
    ):
        return f"has {layer.num_groups} groups, which do not divide the {left} of {layer.num_channels} channels that are left"
    return None


class Mark(nn.Module):
    """Stands in for a layer: notes which of its inputs are there, and marks the outputs that it gives."""

    def __init__(self, layer: nn.Module, width: float) -> None:
        super().__init__()
        self.layer, self.width = layer, width
        self.kind = next(kind for known, kind in KINDS.items() if isinstance(layer, known))
        self.kept: dict[str, tuple[Index, ...]] = {}
        self.sizes = (0, 0)

    def forward(self, x: Tensor) -> Any:
        dim, inputs = self.kind.dim, _there(x, self.kind.dim)
        made = self.layer(x)  # for its shape
        full = made[0] if isinstance(made, tuple) else made
        outputs = torch.arange(channels(full.shape[dim], self.width))
        self.sizes = len(inputs), len(outputs)
        found = self.kind.keeps(self.layer, inputs, outputs)
        self.kept = {
            n: tuple(map(_compact, found[n], p.shape)) for n, p in self.layer.named_parameters()
        }
        return x if self.kind.keeps is _norm else _marked(made, dim, len(outputs))

    def narrowed(self) -> nn.Module:
        """The layer, ready for slices of its weights."""
        layer, (inputs, outputs) = self.layer, self.sizes
        if isinstance(layer, BATCH_NORMS):
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        if isinstance(layer, nn.LSTM):
            layer.input_size, layer.hidden_size = inputs, outputs
        return nn.Sequential(layer, Fit(outputs)) if isinstance(layer, Pad) else layer


def _marked(made: Any, dim: int, outputs: int) -> Any:
    """Of the shape of what was made, zeros, and NaN for the channels that are gone."""
    if isinstance(made, tuple):
        return tuple(_marked(part, dim, outputs) for part in made)
    gone = torch.arange(outputs, made.shape[dim])
    return torch.zeros(made.shape, dtype=made.dtype).index_fill_(dim, gone, torch.nan)


class Fit(nn.Module):
    """So many channels of an image: zeros for those that are missing, none of those beyond."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, self.channels - x.shape[1]))
