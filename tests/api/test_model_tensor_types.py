"""Tensors of a user's model that are not real numbers: masks are kept, complex ones rejected."""

from pathlib import Path

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
