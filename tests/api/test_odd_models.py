"""Models that cannot be trained are rejected before round 0, with the line to write."""

import random
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedloom as fl
from api.tiny import experiment
from fedloom.core.chain_from_module import suggested_cuts
from fedloom.experiment import model_memory


class Scores(nn.Module):
    """Class scores, and what `out` makes of them."""

    def __init__(self, out: Callable[[nn.Module, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 4)
        self.out = out

    def forward(self, x: Tensor) -> Any:
        return self.out(self, x, self.fc(x.flatten(1)))


class ModelOutput(OrderedDict):
    """As libraries of transformers return it: a dictionary with attributes."""


class Raises(Exception):
    pass


def fail(error: Exception) -> Any:
    raise error


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            lambda net, x, scores: {"features": x, "logits": scores},
            r"returns a dict of 'features', 'logits', .* write in its forward: "
            r"return out\['logits'\]",
        ),
        (lambda net, x, scores: (x, scores), r"a tuple of 2 values, .* return out\[1\]"),
        (lambda net, x, scores: [scores], r"a list of 1 values, .* return out\[0\]"),
        (
            lambda net, x, scores: ModelOutput(loss=None, logits=scores),
            r"a ModelOutput of 'loss', 'logits', .* return out\['logits'\]",
        ),
        (lambda net, x, scores: {"x": x}, "a dict of 'x', .* return that tensor alone"),
        (lambda net, x, scores: None, "returns None, .* return it from forward"),
        (lambda net, x, scores: scores.argmax(1), r"returns shape \(1,\) for one sample"),
        (lambda net, x, scores: scores.long(), "numbers of type torch.int64"),
        (
            lambda net, x, scores: (scores, scores) if net.training else scores,
            r"a tuple of 2 values in training .* return out\[0\]",
        ),
        (lambda net, x, scores: {}["gone"], "does not accept a sample .*: KeyError: 'gone'"),
        (lambda net, x, scores: fail(Raises("no")), r"does not accept a sample .*: Raises: no"),
        (lambda net, x, scores: fail(MemoryError()), "does not fit in memory"),
        (
            lambda net, x, scores: fail(Raises("late")) if net.training else scores,
            "fails in training: Raises: late",
        ),
    ],
)
def test_a_model_that_does_not_return_scores(out: Any, said: str, desk: Path) -> None:
    with pytest.raises(fl.UserError, match=said):
        experiment(model=lambda shape, classes: Scores(out)).run()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mlp(width=1000000000)", "1,000,000,070,000,000,004 weights .* 16.0 EB of memory"),
        ("mlp(layers=1000, width=1000000000)", "does not fit in memory|EB of memory"),
        ("mlp(layers=100000)", "layers=100000 must be at most 1000"),
        ("lenet5(padding=1000000)", r"PB of memory in training, but [0-9.]+ .B are available"),
    ],
)
def test_a_model_that_does_not_fit_in_memory_is_not_built(
    model: str, said: str, desk: Path
) -> None:
    began = time.monotonic()
    with pytest.raises(fl.UserError, match=said):
        experiment(model=model).run()
    assert time.monotonic() - began < 10


def test_a_users_model_that_does_not_fit_in_memory(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10**12), nn.Linear(10**12, classes))

    with pytest.raises(fl.UserError, match=r"model 'wide' does not fit in memory, .* choose a sm"):
        experiment(model=wide).run()
    monkeypatch.setattr(model_memory, "available_memory", lambda: 1000)
    with pytest.raises(fl.UserError, match=r"260 weights and needs about 3.1 kB .* but 1.0 kB"):
        experiment(model=lambda shape, classes: flat()).run()


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


def drawn_by_numpy() -> nn.Module:
    net = flat()
    net[1].weight.data = torch.from_numpy(np.random.randn(4, 64)).float()  # noqa: NPY002
    return net


def drawn_by_python() -> nn.Module:
    net = flat()
    net[1].bias.data *= random.random()
    return net


@pytest.mark.parametrize("model", [drawn_by_numpy, drawn_by_python])
def test_weights_that_are_not_drawn_by_torch(model: Any, desk: Path) -> None:
    with pytest.raises(fl.UserError, match="has other initial weights each time it is built"):
        experiment(model=lambda: model()).run()
    assert experiment(model=model(), rounds=1).run().result is not None  # a module has its weights


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(108, 8), nn.ReLU(),
        nn.Linear(8, 4),
    )  # fmt: skip


def test_a_model_of_one_block_is_told_how_to_be_cut(desk: Path) -> None:
    with pytest.raises(fl.UserError, match=r"return fedloom\.cut\(model, cuts=\['1', '2', '4'\]\)"):
        experiment(model=small_cnn(), method="fedmlb").run()
    cut = fl.cut(small_cnn(), cuts=["1", "2", "4"], example=torch.zeros(2, 1, 8, 8))
    assert experiment(model=cut, method="fedmlb", rounds=1).run().result is not None


def test_suggested_cuts_of_a_wrapped_model_lie_inside_it() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small_cnn()

        def forward(self, x: Tensor) -> Any:
            return self.net(x)

    assert suggested_cuts(Wrapped()) == ["net.1", "net.2", "net.4"]
    assert suggested_cuts(nn.Linear(2, 2)) == []


def test_a_projection_that_would_dwarf_the_model(desk: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 128, 3), nn.Flatten(), nn.Linear(4608, 4))
    with pytest.raises(fl.UserError, match=r"4,608 x 4,608 weights.*nn.Linear\(4608, 256\)"):
        experiment(model=model, method="moon").run()
    assert experiment(model=small_cnn(), method="moon", rounds=1).run().result is not None
