"""What a run says once, before round 0."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fedloom as fl
from api.tiny import experiment, sha

NOTHING_KEPT = "finds none of the layers that it keeps at the clients"


class OwnNorm(nn.Module):
    """A norm of a library's own class, as transformers has for Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def with_norm(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), norm, nn.Linear(4, 4))


def said_by(**settings: object) -> tuple[list[str], fl.Run]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = experiment(rounds=1, **settings).run()
    return [str(one.message) for one in caught], run


@pytest.mark.parametrize("method", ["pfedme", "perfedavg(steps=2)"])
def test_a_learning_rate_that_is_not_used(method: str, desk: Path) -> None:
    notes, run = said_by(method=method, lr=0.2)
    assert [note for note in notes if "does not use train.lr=0.2" in note]
    notes, same = said_by(method=method)
    assert notes == [] and sha(same) == sha(run)


@pytest.mark.parametrize(
    ("method", "norm", "noted"),
    [
        ("fedbn", nn.RMSNorm(4), False),
        ("fedbn", nn.Identity(), True),
        ("fedbn", OwnNorm(), True),
        ("fedbn", nn.LayerNorm(4).requires_grad_(False), True),
        ("fedbn+fedper", OwnNorm(), True),  # fedper keeps the head, fedbn nothing
        ("fedper", OwnNorm(), False),
        ("fedavg", OwnNorm(), False),
    ],
)
def test_a_method_that_keeps_nothing_at_the_clients(
    method: str, norm: nn.Module, noted: bool, desk: Path
) -> None:
    notes, _ = said_by(method=method, model=with_norm(norm))
    assert [f"method 'fedbn' {NOTHING_KEPT}" in note for note in notes].count(True) == noted


def test_layers_of_an_own_class_are_kept_as_the_note_says(desk: Path) -> None:
    kept = fl.Method("own-bn", private=fl.methods.of_type(OwnNorm))
    for engine in ("inprocess", "pool"):
        notes, run = said_by(method=kept, model=with_norm(OwnNorm()), engine=engine)
        assert not any(NOTHING_KEPT in note for note in notes)
        shared = [p for n, p in run.model.named_parameters() if n == "2.weight"]
        assert torch.equal(shared[0], torch.ones(4))  # no client has sent its own
