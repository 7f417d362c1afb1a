"""Tensors of a user's model that are not plain real numbers.

Masks and expanded tensors work; complex, sparse and quantised ones and other objects are rejected.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedloom as fl
from api.tiny import experiment


class Extra(nn.Module):
    """Multiplies its features by a tensor of any type."""

    def __init__(self, extra: Tensor, buffer: bool) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 4)
        if buffer:
            self.register_buffer("extra", extra)
        else:
            self.extra = nn.Parameter(extra)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head((self.body(x.flatten(1)) * self.extra).abs())
        return scores


@pytest.mark.parametrize("engine", ["inprocess", "vectorised"])
def test_a_mask_of_true_and_false_is_a_buffer_like_others(engine: str, desk: Path) -> None:
    mask = torch.arange(8) > 2
    run = experiment(model=lambda: Extra(mask, buffer=True), engine=engine).run()
    assert run.model.extra.equal(mask) and not any(h.rejected for h in run.history)
    as_numbers = experiment(model=lambda: Extra(mask.float(), buffer=True), engine=engine).run()
    assert run.model.body.weight.equal(as_numbers.model.body.weight)


@pytest.mark.parametrize("buffer", [True, False])
def test_complex_numbers_are_rejected(buffer: bool, desk: Path) -> None:
    model = Extra(torch.ones(8, dtype=torch.complex64), buffer)
    with pytest.raises(fl.UserError, match=r"'extra' of model 'Extra\S*' has complex numbers; st"):
        experiment(model=model).run()


@pytest.mark.parametrize("buffer", [True, False])
def test_an_expanded_tensor_is_trained_like_its_dense_copy(buffer: bool, desk: Path) -> None:
    expanded = torch.ones(1, 1).expand(1, 8)
    run = experiment(model=lambda: Extra(expanded, buffer)).run()
    assert not any(h.rejected for h in run.history)
    dense = experiment(model=lambda: Extra(expanded.contiguous(), buffer)).run()
    assert run.model.extra.equal(dense.model.extra)
    assert run.model.body.weight.equal(dense.model.body.weight)


class Counting(Extra):
    """Saves something that is not a tensor."""

    def __init__(self) -> None:
        super().__init__(torch.ones(8), buffer=True)

    def get_extra_state(self) -> Any:
        return {"steps": 3}


def sparse() -> nn.Module:
    model = Extra(torch.ones(8), buffer=True)
    model.register_buffer("graph", torch.eye(3).to_sparse())
    return model


def quantised() -> nn.Module:
    model = Extra(torch.ones(8), buffer=True)
    model.register_buffer("codes", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8))
    return model


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:TypedStorage")
@pytest.mark.parametrize("build", [Counting, sparse, quantised])
@pytest.mark.parametrize("passed", [lambda build: build(), lambda build: lambda: build()])
def test_what_is_no_dense_tensor_is_rejected(
    build: Callable[[], nn.Module], passed: Any, desk: Path
) -> None:
    with pytest.raises(fl.UserError, match=r"'\w+' of model .* is a .*, which cannot be sent or"):
        experiment(model=passed(build)).run("refused")
    assert not Path("refused").exists()


def test_a_module_that_cannot_be_copied(desk: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    model.lock = threading.Lock()
    said = r"cannot be copied \(TypeError: cannot pickle .*\), .* pass a function that builds it"
    with pytest.raises(fl.UserError, match=said):
        experiment(model=model).run()


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_module_compiled_by_torch_jit(desk: Path) -> None:
    """Copies of it share an executor: with a teacher, its gradients were wrong."""

    def plain() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))

    with pytest.raises(fl.UserError, match=r"torch.jit compiled, .* or a function that builds it"):
        experiment(model=torch.jit.script(plain()), method="kd").run()
    built = experiment(model=lambda: torch.jit.script(plain()), method="kd").run()
    assert built.model[1].weight.equal(experiment(model=plain, method="kd").run().model[1].weight)


class Tokens(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.of_pixels, self.head = nn.Embedding(16, 8, sparse=sparse), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        numbers = (x.flatten(1) * 2).long().clamp(-8, 7) + 8
        scores: Tensor = self.head(self.of_pixels(numbers).mean(1))
        return scores


@pytest.mark.parametrize(
    "settings",
    [
        {"optimiser": "adamw"},
        {"train": {"momentum": 0.9, "weight_decay": 0.01, "clip": 1.0}},
        {"train": {"sam": 0.05}, "precision": "fp16"},
        {"method": "pfedme"},
        {"method": "scaffold"},
    ],
)
def test_sparse_gradients_are_those_of_a_dense_layer(settings: dict[str, Any], desk: Path) -> None:
    got = experiment(model=lambda: Tokens(sparse=True), **settings).run()
    expected = experiment(model=lambda: Tokens(sparse=False), **settings).run()
    assert not any(h.rejected for h in got.history)
    assert torch.allclose(got.model.of_pixels.weight, expected.model.of_pixels.weight, atol=1e-6)
