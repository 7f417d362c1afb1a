"""Which channels every layer of a model keeps at a fraction of its width, found by tracing NaN.

Every layer with weights is replaced by a `TracedLayer`, which keeps its first channels, sets the
channels it drops to NaN, and records which of its input channels are not NaN. All other code of the
model runs as it is written. Residual connections, concatenated branches and flattened images are
therefore followed without special rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.select import BATCH_NORMS
from fedloom.core.transfer import to_device
from fedloom.models.residual import PadShortcut

CHANNEL_MULTIPLE = 8
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Kept = int | Tensor | None  # of a dimension: the first n entries, these indices, or all
WeightIndices = dict[str, tuple[Tensor, ...]]  # for every weight, the indices kept per dimension


def slimmed_channels(count: int, width: float) -> int:
    """The number of channels kept at this width: a multiple of eight, as in slimmable networks.

    Layers of fewer than sixteen channels keep the rounded fraction.

    >>> [slimmed_channels(count, 0.8) for count in (6, 16, 32, 128)]
    [5, 16, 24, 104]
    """
    multiple = CHANNEL_MULTIPLE
    if count < 2 * multiple or width == 1:
        return max(1, round(count * width))
    kept = max(1, int(count * width + multiple / 2) // multiple * multiple)
    if kept < 0.9 * count * width:  # rounding down must not lose more than a tenth
        kept += multiple
    return min(count, kept)


def sliced(t: Tensor, dim: int, kept: Kept) -> Tensor:
    """The kept entries of a dimension."""
    if kept is None:
        return t
    if isinstance(kept, int):
        return t.narrow(dim, 0, kept)
    return t.index_select(dim, to_device(kept, t.device))


class KeptChannels(NamedTuple):
    """The channels that are left of some features: their dimension, and which of them are kept."""

    dim: int
    kept: Kept


def kept_channels(traced: Tensor, channel_dim: int) -> KeptChannels:
    """Read the channels that are left from traced features: those without NaN.

    channel_dim: the dimension of the channels if all of them are left.
    """
    for dim in range(1, traced.dim()):
        present = _present(traced, dim)
        if 0 < len(present) < traced.shape[dim]:
            return KeptChannels(dim, _compact(present, traced.shape[dim]))
    if traced.isnan().any():
        raise RuntimeError("a layer mixes channels that are kept with channels that are dropped")
    return KeptChannels(channel_dim, None)


def _present(x: Tensor, dim: int) -> Tensor:
    """The indices of a dimension that hold no NaN."""
    return (~x.isnan().movedim(dim, 0).flatten(1).any(1)).nonzero().flatten()


def _compact(indices: Tensor, size: int) -> Kept:
    """The same indices as None if they are all, or as their number if they are the first ones."""
    if len(indices) == size:
        return None
    return len(indices) if torch.equal(indices, torch.arange(len(indices))) else indices


# (layer, kept inputs, kept outputs) -> kept indices of its weights
WeightRule = Callable[[Any, Tensor, Tensor], WeightIndices]


def _dense(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> WeightIndices:
    return {"weight": (outputs, inputs), "bias": (outputs,)}


def _norm(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> WeightIndices:
    return {"weight": (inputs,), "bias": (inputs,)}


def _embedding(layer: nn.Embedding, inputs: Tensor, outputs: Tensor) -> WeightIndices:
    return {"weight": (torch.arange(layer.num_embeddings), outputs)}


def _lstm(layer: nn.LSTM, inputs: Tensor, outputs: Tensor) -> WeightIndices:
    # The four gates are stacked along the first dimension of every weight.
    gates = torch.cat([gate * layer.hidden_size + outputs for gate in range(4)])
    indices: WeightIndices = {}
    for number in range(layer.num_layers):
        indices[f"weight_ih_l{number}"] = (gates, outputs if number else inputs)
        indices[f"weight_hh_l{number}"] = (gates, outputs)
        indices[f"bias_ih_l{number}"] = (gates,)
        indices[f"bias_hh_l{number}"] = (gates,)
    return indices


def _no_weights(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> WeightIndices:
    return {}


class LayerKind(NamedTuple):
    """A kind of layer: which entries its weights keep, and the dimension of its channels."""

    weights: WeightRule
    dim: int


LAYER_KINDS: dict[type[nn.Module], LayerKind] = {
    nn.Conv1d: LayerKind(_dense, 1),
    nn.Conv2d: LayerKind(_dense, 1),
    nn.Conv3d: LayerKind(_dense, 1),
    nn.Linear: LayerKind(_dense, -1),
    nn.Embedding: LayerKind(_embedding, -1),
    nn.LSTM: LayerKind(_lstm, -1),
    BATCH_NORMS[0]: LayerKind(_norm, 1),
    nn.GroupNorm: LayerKind(_norm, 1),
    PadShortcut: LayerKind(_no_weights, 1),
}
SLIMMABLE_LAYERS: tuple[type[nn.Module], ...] = tuple(LAYER_KINDS)


def slimming_problem(layer: nn.Module, width: float) -> str | None:
    """Why a layer that holds tensors cannot be slimmed to the width, or None if it can."""
    if not isinstance(layer, SLIMMABLE_LAYERS):
        return f"is a {type(layer).__name__}, which cannot be slimmed"
    if isinstance(layer, CONVOLUTIONS) and layer.groups > 1:
        return f"is a convolution in {layer.groups} groups, which cannot be slimmed"
    if isinstance(layer, nn.LSTM) and (layer.bidirectional or layer.proj_size):
        return "is a bidirectional LSTM or one with a projection, which cannot be slimmed"
    if isinstance(layer, nn.GroupNorm):
        kept = slimmed_channels(layer.num_channels, width)
        if kept % layer.num_groups:
            return (
                f"has {layer.num_groups} groups, which do not divide the {kept} of "
                f"{layer.num_channels} channels that are kept"
            )
    return None


class TracedLayer(nn.Module):
    """Stands in for a layer during tracing.

    It records which input channels are present (not NaN), and returns zeros for the output channels
    that it keeps and NaN for those that it drops. kept: for every weight, what is kept of each
    dimension.
    """

    def __init__(self, layer: nn.Module, width: float) -> None:
        super().__init__()
        self.layer, self.width = layer, width
        self.kind = next(kind for cls, kind in LAYER_KINDS.items() if isinstance(layer, cls))
        self.kept: dict[str, tuple[Kept, ...]] = {}
        self.sizes = (0, 0)  # kept input and output channels

    def forward(self, x: Tensor) -> Any:
        dim, inputs = self.kind.dim, _present(x, self.kind.dim)
        output = self.layer(x)  # only its shape is used
        features = output[0] if isinstance(output, tuple) else output
        outputs = torch.arange(slimmed_channels(features.shape[dim], self.width))
        self.sizes = len(inputs), len(outputs)
        indices = self.kind.weights(self.layer, inputs, outputs)
        self.kept = {
            name: tuple(map(_compact, indices[name], weight.shape))
            for name, weight in self.layer.named_parameters()
        }
        if self.kind.weights is _norm:  # a norm keeps the channels that it gets
            return x
        return _with_dropped_channels(output, dim, len(outputs))

    def slimmed(self) -> nn.Module:
        """The layer, prepared to run on slices of its weights."""
        layer, (inputs, outputs) = self.layer, self.sizes
        if isinstance(layer, BATCH_NORMS):
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        if isinstance(layer, nn.LSTM):
            layer.input_size, layer.hidden_size = inputs, outputs
        if isinstance(layer, PadShortcut):  # a multiple of the kept inputs may not be what is kept
            return nn.Sequential(layer, FitChannels(outputs))
        return layer


def _with_dropped_channels(output: Any, dim: int, kept: int) -> Any:
    """Zeros of the output's shape, with NaN in the channels after the first `kept`."""
    if isinstance(output, tuple):
        return tuple(_with_dropped_channels(part, dim, kept) for part in output)
    dropped = torch.arange(kept, output.shape[dim])
    return torch.zeros(output.shape, dtype=output.dtype).index_fill_(dim, dropped, torch.nan)


class FitChannels(nn.Module):
    """Pads an image with zero channels, or crops its channels, to a fixed number."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, self.channels - x.shape[1]))
