"""FedMLB on every model: its loss and gradients equal those of pathways run one by one."""

import pytest
import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.sampler import everyone
from fedloom.core.select import has_batch_statistics
from fedloom.core.spec import Spec
from fedloom.core.step import Step
from fedloom.methods.fedmlb import fedmlb
from fedloom.models.registry import MODELS, build
from support import distillation_oracles
from support.oracles import World
from support.simulate import standalone_job

CLASSES, ROWS = 5, 3
KEY = Key.root(3)
ARGS = {"vgg": {"dropout": 0.0}, "lstm": {"width": 6}} | {
    n: {"width": 2} for n in MODELS if n.startswith("resnet")
}  # the others: defaults
SHAPES = {"lstm": (6,), "lenet5": (1, 16, 16), "cnn1d": (3, 16), "cnn3d": (1, 8, 8, 8)}


def made(name: str) -> Chain:
    return build(
        Spec(name, ARGS.get(name, {})), SHAPES.get(name, (3, 8, 8)), CLASSES, KEY, torch.float64
    )


def batch(name: str) -> Tensor:
    g, shape = KEY.fold("x").generator(), (ROWS, *SHAPES.get(name, (3, 8, 8)))
    return (
        torch.randint(CLASSES, shape, generator=g)
        if name == "lstm"
        else torch.randn(shape, generator=g, dtype=torch.float64)
    )


def moved(chain: Chain) -> Chain:
    """The same model with changed weights, so that hybrid pathways differ from it."""
    g = KEY.fold("moved").generator()
    with torch.no_grad():
        for p in chain.parameters():
            p += 0.05 * p.abs().mean() * torch.randn(p.shape, generator=g, dtype=p.dtype)
    return chain


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_pathways_run_one_by_one(name: str) -> None:
    sent, x, y = dict(made(name).state_dict()), batch(name), torch.arange(ROWS)
    ours, theirs = moved(made(name)), moved(made(name))
    pathways = range(1, len(ours.names))
    job = standalone_job(lambda: made(name), sent)
    assert job.model_pool.batch_statistics == has_batch_statistics(ours)
    loss = (
        fedmlb(0.8, 1.3, 1.5)
        .phases[0]
        .total(Step(x, y, ours, job, dict(ours.named_parameters()), KEY, 1))
    )
    naive = distillation_oracles.fedmlb(0.8, 1.3, 1.5, list(pathways), len(pathways))
    world = World(lambda: made(name), [], KEY, everyone())
    expected = naive(world, 0, 0, sent, sent)(theirs, x, y)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-12)
    found = torch.autograd.grad(loss, list(ours.parameters()))
    for grad, other in zip(
        found, torch.autograd.grad(expected, list(theirs.parameters())), strict=True
    ):
        assert grad.isfinite().all()
        torch.testing.assert_close(grad, other, rtol=0, atol=1e-12)
    # The loss if the weights were the received ones.
    same = 1.8 * distillation_oracles.cross_entropy(theirs(x), y)
    assert abs((loss - same).item()) > 1e-6
