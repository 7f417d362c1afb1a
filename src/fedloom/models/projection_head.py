"""The projection head of MOON: a small MLP before the classifier, as a block of its own.

    feature -> Linear(d, d) -> ReLU -> Linear(d, width) = z -> classifier

MOON compares models by z, the output of the block "projection".
Reference: Li et al., Model-Contrastive Federated Learning, CVPR 2021, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx, nn

from fedloom.core.chain import Chain
from fedloom.core.chain_from_module import restored
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.models.layers import named, relu

BLOCK = "projection"  # the name of the block that is added
MAX_FEATURES = 4096  # before the classifier; the paper's models have 84 to 2,048


def accepts_projection_head(chain: Chain) -> bool:
    """Whether the last block ends with a linear layer, before which a projection can be put."""
    return BLOCK not in chain.names and _classifier_path(chain.block(chain.names[-1])) is not None


def projection_head(width: int) -> Callable[[Chain, Key], Chain]:
    """A function that inserts a projection of this width before the classifier of a chain.

    The last block keeps its name and becomes the classifier alone; its earlier layers begin the new
    block. The new layers, a new classifier among them, are drawn by PyTorch's default from the key.
    With width 0 the chain is only split there, and no layer is added.
    """

    def insert(chain: Chain, key: Key) -> Chain:
        *others, last = chain.names
        feature, name, classifier = _split(chain.block(last))
        layers: dict[str, nn.Module] = {"feature": feature}
        if width:
            _check_size(classifier)
            fc1, fc2, classifier = _new_layers(classifier, width, key.fold(BLOCK))
            layers |= {"fc1": fc1, "relu": relu(), "fc2": fc2}
        head = named(**{name: classifier}) if name else classifier
        return Chain({n: chain.block(n) for n in others} | {BLOCK: named(**layers), last: head})

    return insert


def _check_size(classifier: nn.Linear) -> None:
    """Raise if the projection would dwarf the model: it has a weight for each pair of features."""
    features = classifier.in_features
    if features > MAX_FEATURES:
        raise UserError(
            f"the projection of this model would have {features:,} x {features:,} weights, one for "
            f"each pair of the {features:,} features before its classifier; put a smaller layer "
            f"before the classifier, such as nn.Linear({features}, 256), or set projection=0"
        )


def _new_layers(old: nn.Linear, width: int, key: Key) -> list[nn.Linear]:
    """The two layers of the projection and the classifier after it.

    They are drawn on the CPU, as models are, then moved to the old classifier's device and dtype.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(key.seed)
        inner = [nn.Linear(old.in_features, old.in_features), nn.Linear(old.in_features, width)]
        layers = [*inner, nn.Linear(width, old.out_features, bias=old.bias is not None)]
    return [layer.to(old.weight.device, old.weight.dtype) for layer in layers]


def _split(block: nn.Module) -> tuple[nn.Module, str, nn.Linear]:
    """The block without its classifier, the classifier's name, and the classifier.

    The name is "" if the block is the classifier.
    """
    path = _classifier_path(block)
    assert path is not None
    if isinstance(block, nn.Linear):
        return nn.Identity(), "", block
    parent, _, name = path.rpartition(".")
    classifier = block.get_submodule(path)
    assert isinstance(classifier, nn.Linear)
    setattr(block.get_submodule(parent), name, nn.Identity())
    return block, name, classifier


def _classifier_path(block: nn.Module) -> str | None:
    """The path of the linear layer that produces the block's output, or None if there is none.

    It is read from the traced forward pass, so the layer need not be the last one defined.
    """
    if isinstance(block, nn.Linear):
        return ""
    try:
        with restored(block):
            nodes = list(fx.Tracer().trace(block).nodes)
    except Exception:  # a forward pass on symbols can fail in any way
        return None
    output = nodes[-1].args[0]
    if not isinstance(output, fx.Node) or output.op != "call_module":
        return None
    path = str(output.target)
    called_once = sum(node.target == output.target for node in nodes) == 1
    return path if called_once and isinstance(block.get_submodule(path), nn.Linear) else None
