"""A weight with two names trains as one, and two weights may have one gradient."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from api.tiny import experiment


class Sum(nn.Module):
    """Uses the sum of two weights only, so autograd returns one tensor as the gradient of both."""

    def __init__(self, copies: bool = False) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(4, 64) / 8) for _ in range(2))
        self.copies = copies

    def forward(self, x: Tensor) -> Tensor:
        weight = self.a * 1.0 + self.b * 1.0 if self.copies else self.a + self.b
        return F.linear(x.flatten(1), weight)


@pytest.mark.parametrize("method", ["pfedme", "perfedavg(variant=hf)", "fedavg"])
def test_two_weights_with_one_gradient(method: str, desk: Path) -> None:
    one, two = Sum(), Sum(copies=True)
    two.load_state_dict(one.state_dict())
    expected = experiment(model=two, method=method).run().model
    got = experiment(model=one, method=method).run().model
    assert got.a.equal(expected.a) and got.b.equal(expected.b)
