"""A weight with two names trains as one, and two weights may have one gradient."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedloom as fl
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


class Twice(nn.Module):
    """Uses one weight in two layers; tied: it also has the name that the second layer gives it."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        if tied:
            self.b.weight = self.a.weight
        else:
            del self.b.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x.flatten(1)).relu()
        scores: Tensor = self.head(F.linear(h, self.a.weight, self.b.bias).relu())
        return scores


@pytest.mark.parametrize("method", ["pfedme(pace=0.1,lr=0.05)", "ditto", "scaffold"])
def test_a_tied_weight_is_one_weight(method: str, desk: Path) -> None:
    tied, once = Twice(tied=True), Twice(tied=False)
    once.load_state_dict({n: t for n, t in tied.state_dict().items() if n != "b.weight"})
    got, expected = (experiment(model=m, method=method).run() for m in (tied, once))
    x = torch.randn(5, 1, 8, 8)

    def scores(run: fl.Run, client: int) -> Tensor:
        model: nn.Module = run.client(client).model
        return model(x)

    assert got.model(x).equal(expected.model(x))
    if method != "scaffold":  # which has no personal models
        assert all(scores(got, c).equal(scores(expected, c)) for c in range(8))
