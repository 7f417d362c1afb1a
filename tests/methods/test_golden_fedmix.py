"""FedMix, NaiveMix, Global Mixup and LocalMix against closed forms.

Among them the mistake that public FedMix implementations make.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.step import Step
from fedloom.losses.directional_derivative import by_double_backward, directional_derivative
from fedloom.losses.mixup import interpolated, mixed_within_batch, with_one_hot_labels
from fedloom.methods.fedmix import fedmix
from fedloom.methods.naivemix import naivemix
from support.golden import golden
from support.simulate import standalone_job

MIX = golden("fedmlb/fedmix")
LOSS, WEIGHTS = 1e-12, 1e-11
LAMS = ["0.05", "0.1", "0.2", "0.5"]
FORMS = ["eq5", "alg2"]
CLASSES = 3
Slope = Callable[[Chain, Tensor, Tensor, Tensor], tuple[dict[str, Tensor], Tensor]]


def linear() -> Chain:
    """softmax(W x + b)."""
    layer = nn.Linear(5, CLASSES).double()
    layer.load_state_dict({"weight": MIX["W"], "bias": MIX["b"]})
    return Chain({"head": layer})


def perceptron() -> Chain:
    """One hidden tanh layer."""
    chain = Chain(
        {"body": nn.Sequential(nn.Linear(5, 6), nn.Tanh()), "head": nn.Linear(6, CLASSES)}
    ).double()
    names = {"body.0.weight": "W1", "body.0.bias": "b1", "head.weight": "W2", "head.bias": "b2"}
    chain.load_state_dict({ours: MIX[f"mlp/{theirs}"] for ours, theirs in names.items()})
    return chain


def loss_of(method: Method, chain: Chain) -> Tensor:
    """The loss on the golden batch, with the golden average as the only one."""
    sent = {"x": MIX["x_g"][None], "y": MIX["y_g"][None], "owner": torch.tensor([1])}
    job = replace(standalone_job(lambda: chain, {}, shared={"mashed": sent}), classes=CLASSES)
    (phase,) = method.phases
    x, y = phase.mix(MIX["x"], MIX["y"], job, Key.root(0))
    return phase.total(Step(x, y, chain, job, dict(chain.named_parameters()), Key.root(0), 1))


def near(got: Tensor, expected: Tensor, atol: float = LOSS) -> None:
    torch.testing.assert_close(got.detach(), expected, rtol=0, atol=atol)


def equal(loss: Tensor, chain: Chain, known: str, *names: str) -> None:
    near(loss, MIX[f"{known}/loss"])
    for got, name in zip(torch.autograd.grad(loss, list(chain.parameters())), names, strict=False):
        near(got, MIX[f"{known}/{name}"], WEIGHTS)


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("form", FORMS)
def test_fedmix(lam: str, form: str) -> None:
    chain = linear()
    equal(
        loss_of(fedmix(lam=float(lam), coefficient=form), chain),
        chain,
        f"lam{lam}/fedmix_{form}",
        "grad_W",
        "grad_b",
    )


@pytest.mark.parametrize("form", FORMS)
def test_fedmix_on_a_perceptron(form: str) -> None:
    """Its second derivatives involve more than the softmax."""
    chain = perceptron()
    method = fedmix(lam=float(MIX["mlp/lam"]), coefficient=form)
    equal(loss_of(method, chain), chain, f"mlp/{form}", "gW1", "gb1", "gW2", "gb2")


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("slope", [directional_derivative, by_double_backward])
def test_the_derivative_is_divided_by_the_batch_size_once(lam: str, slope: Slope) -> None:
    """Divided twice, as in every public FedMix we know, it is too small by the batch size."""
    share, chain = float(lam), linear()
    _, found = slope(chain, (1 - share) * MIX["x"], MIX["y"], MIX["x_g"])
    near(found, MIX[f"lam{lam}/J"])
    near(share * (1 - share) * found, MIX[f"lam{lam}/fedmix_alg2/l3"])
    wrong = MIX[f"lam{lam}/WRONG_l3_divided_by_B_twice_alg2"]
    near(share * (1 - share) * found / len(MIX["y"]), wrong)
    off = loss_of(fedmix(lam=share), chain) - MIX[f"lam{lam}/l1"] - MIX[f"lam{lam}/l2"] - wrong
    assert float(off.abs().detach()) > 1e-3
    common = loss_of(fedmix(lam=share, derivative="common"), chain)
    near(common, MIX[f"lam{lam}/l1"] + MIX[f"lam{lam}/l2"] + wrong)


@pytest.mark.parametrize("lam", LAMS)
def test_naivemix(lam: str) -> None:
    chain = linear()
    equal(loss_of(naivemix(lam=float(lam)), chain), chain, f"lam{lam}/naivemix", "grad_W", "grad_b")


@pytest.mark.parametrize("lam", LAMS)
def test_global_mixup_with_six_partners(lam: str) -> None:
    chain, own = linear(), with_one_hot_labels(MIX["x"], MIX["y"], CLASSES)
    others = with_one_hot_labels(MIX["others_x"], MIX["others_y"], CLASSES)
    mixed = [interpolated(own, other, 1 - float(lam)) for other in zip(*others, strict=True)]
    equal(
        torch.stack([F.cross_entropy(chain(x), y) for x, y in mixed]).mean(),
        chain,
        f"lam{lam}/globalmixup_mean6",
        "grad_W",
    )


@pytest.mark.parametrize("lam", LAMS)
def test_localmix(lam: str) -> None:
    chain = linear()
    x, rows = mixed_within_batch(
        MIX["x"], MIX["y"], torch.tensor([2, 0, 3, 1]), 1 - float(lam), CLASSES
    )
    equal(F.cross_entropy(chain(x), rows), chain, f"lam{lam}/localmix_perm2031", "grad_W")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("build", [linear, perceptron])
def test_fedmix_is_global_mixup_to_first_order(form: str, build: Callable[[], Chain]) -> None:
    """Proposition 1: halve lam, and the difference from global mixup with the six is a quarter."""
    chain, own = build(), with_one_hot_labels(MIX["x"], MIX["y"], CLASSES)
    gaps = []
    for lam in (0.002, 0.001):
        mixed = [
            interpolated(own, other, 1 - lam)
            for other in zip(
                *with_one_hot_labels(MIX["others_x"], MIX["others_y"], CLASSES), strict=True
            )
        ]
        exact = torch.stack([F.cross_entropy(chain(x), y) for x, y in mixed]).mean()
        gaps.append(
            float((loss_of(fedmix(lam=lam, coefficient=form), chain) - exact).abs().detach())
        )
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.02)
