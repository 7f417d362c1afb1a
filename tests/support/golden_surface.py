"""The tanh network of the golden file of Hessians."""

from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.diagnostics.curvature import LossSurface, split_batches


def golden_surface(gold: dict[str, Tensor], chunk: int = 7) -> LossSurface:
    """Its loss on its twenty samples, so many at a time."""
    body, head = nn.Sequential(nn.Linear(6, 5), nn.Tanh()), nn.Linear(5, 3)
    chain = Chain({"body": body, "head": head}).double()
    nn.utils.vector_to_parameters(gold["params_flat"], chain.parameters())
    return LossSurface(chain, split_batches(gold["x"], gold["y"], chunk))
