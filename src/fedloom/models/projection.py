"""A projection in front of the classifier: a block whose output is the feature that methods compare."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.models.layers import named, relu

BLOCK = "projection"


def can_project(chain: Chain) -> bool:
    """Whether the last block ends with a linear layer, in front of which a projection can stand."""
    return BLOCK not in chain.names and _classifier(chain.block(chain.names[-1])) is not None


def projected(width: int) -> Callable[[Chain, Key], Chain]:
    """Linear, ReLU and a linear layer to so many numbers, in front of a classifier of these; 0 cuts there and adds nothing.

    New layers are drawn as PyTorch draws them. The last block keeps its name and is the classifier alone; what it did before that
    begins the new block.
    """

    def reshape(chain: Chain, key: Key) -> Chain:
        *others, last = chain.names
        feature, name, classifier = _split(chain.block(last))
        layers: dict[str, nn.Module] = {"feature": feature}
        if width:
            fresh = _drawn(classifier, width, key.fold(BLOCK))
            layers |= {"fc1": fresh[0], "relu": relu(), "fc2": fresh[1]}
            classifier = fresh[2]
        head = named(**{name: classifier}) if name else classifier
        return Chain({n: chain.block(n) for n in others} | {BLOCK: named(**layers), last: head})

    return reshape


def _drawn(old: nn.Linear, width: int, key: Key) -> list[nn.Linear]:
    """The two layers of the projection and the classifier behind it, drawn on the CPU as a model is, then of the old one's kind."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(key.seed)
        inner = [nn.Linear(old.in_features, old.in_features), nn.Linear(old.in_features, width)]
        layers = [*inner, nn.Linear(width, old.out_features, bias=old.bias is not None)]
    return [layer.to(old.weight.device, old.weight.dtype) for layer in layers]


def _split(block: nn.Module) -> tuple[nn.Module, str, nn.Linear]:
    """What the block does before its classifier, the classifier's own name ("" if it is the block), and the classifier."""
    path = _classifier(block)
    assert path is not None
    if isinstance(block, nn.Linear):
        return nn.Identity(), "", block
    parent, _, name = path.rpartition(".")
    classifier = block.get_submodule(path)
    assert isinstance(classifier, nn.Linear)
    setattr(block.get_submodule(parent), name, nn.Identity())
    return block, name, classifier


def _classifier(block: nn.Module) -> str | None:
    """The name of the linear layer that the block ends with, or None; it is read off the forward pass, so any module will do."""
    if isinstance(block, nn.Linear):
        return ""
    try:
        nodes = list(fx.Tracer().trace(block).nodes)
    except Exception:  # a forward that is fed with symbols can fail in any way
        return None
    end = nodes[-1].args[0]
    if not isinstance(end, fx.Node) or end.op != "call_module":
        return None
    path = str(end.target)
    once = sum(node.target == end.target for node in nodes) == 1
    return path if once and isinstance(block.get_submodule(path), nn.Linear) else None
