"""The small ResNet of FedMLB's golden numbers, with our tensor names."""

import re
from collections.abc import Mapping

from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain


def our_name(official: str) -> str:
    """Our name of a tensor in the authors' model."""
    name = re.sub(r"^(conv1|bn1)\.", lambda m: f"stem.{m[1][:-1]}.", official)
    name = re.sub(r"^(layer\d\.\d)\.(conv|bn)", r"\1.body.\2", name)
    name = name.replace("shortcut.0.", "shortcut.conv.").replace("shortcut.1.", "shortcut.norm.")
    return name.replace("linear.", "head.fc.").replace("bn", "norm")


def golden_resnet(numbers: Mapping[str, Tensor], side: str) -> Chain:
    """The network with the golden "local" or "global" weights."""
    chain = residual_chain(
        (3, 8, 8), 5, (1, 1, 1, 1), (4, 6, 8, 10), make_norm("group", 2)
    ).double()
    weights = {
        our_name(n.removeprefix(f"{side}/")): t
        for n, t in numbers.items()
        if n.startswith(f"{side}/")
    }
    chain.load_state_dict(weights, strict=True)
    return chain
