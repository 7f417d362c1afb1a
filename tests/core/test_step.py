"""The trained weights as one vector, and in pieces without copying large tensors."""

import pytest
import torch
from torch import Tensor

from fedloom.core import step as stepping
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.core.step import Step
from fedloom.losses.terms import linear_term, proximal_term
from support.models import nested
from support.simulate import initial_model, standalone_job


def doubled(job: Job) -> Params:
    return {n: 2 * t + 1 for n, t in job.received.items()}


def made() -> tuple[Step, dict[str, Tensor]]:
    model = initial_model(nested)
    job = standalone_job(nested, {n: t.clone() for n, t in model.state_dict().items()})
    params = dict(model.named_parameters())
    return Step(torch.zeros(1), torch.zeros(1), model, job, params, Key.root(0), 1), params


@pytest.mark.parametrize("large", [0, 8, 1 << 18])
def test_pieces_concatenate_to_the_vector(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(stepping, "LARGE_TENSOR", large)
    step, params = made()
    ours, theirs = zip(*step.pieces_with(doubled), strict=True)
    assert torch.equal(torch.cat(ours), step.vector)
    assert torch.equal(torch.cat(theirs), step.vector_of(doubled))
    alone = {w.data_ptr() for w in ours} & {p.data_ptr() for p in params.values()}
    assert {p.data_ptr() for p in params.values() if p.numel() > large} <= alone


@pytest.mark.parametrize("large", [0, 1 << 18])
def test_terms_by_hand(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    """Gradients of inner product and proximal term, however the weights are split."""
    monkeypatch.setattr(stepping, "LARGE_TENSOR", large)
    step, params = made()
    aim = doubled(step.job)
    pulls = torch.autograd.grad(linear_term(doubled)(step), list(params.values()))
    assert all(torch.equal(g, aim[n]) for n, g in zip(params, pulls, strict=True))
    springs = torch.autograd.grad(proximal_term(0.5, doubled)(step), list(params.values()))
    for (name, p), g in zip(params.items(), springs, strict=True):
        torch.testing.assert_close(g, 0.5 * (p - aim[name]).detach())
