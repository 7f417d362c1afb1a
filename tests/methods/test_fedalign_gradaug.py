"""FedAlign and GradAug beyond the golden numbers: scales, clipping, suitable models, draws."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.solver import Sgd
from fedloom.core.spec import Spec
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.losses.eager_gradient import eager_gradient
from fedloom.losses.lipschitz import MAX_SQUARED_ROWS, spectral_norm, transmitting_matrix
from fedloom.methods.fedalign import fedalign, lipschitz_constants
from fedloom.methods.fedavg import fedavg
from fedloom.methods.gradaug import draw_subnetworks, gradaug
from fedloom.models.registry import build
from fedloom.models.subnetwork import SubNetworks
from support.models import bare
from support.simulate import initial_model, make_simulation, simulate, standalone_job

CLASSES = 10


def step_on(name: str, **args: Any) -> Step:
    """A mini-batch of noise on one of the package's models."""
    text, draws = name == "lstm", torch.Generator().manual_seed(2)
    shape = (6,) if text else (3, 16, 16)
    chain = build(Spec(name, args), shape, CLASSES, Key.root(1), dtype=torch.float64).train()
    x = (
        torch.randint(CLASSES, (4, 6), generator=draws)
        if text
        else torch.randn(4, *shape, generator=draws, dtype=torch.float64)
    )
    y = torch.randint(CLASSES, (4,), generator=draws)
    return Step(
        x,
        y,
        chain,
        standalone_job(lambda: chain, {}),
        dict(chain.named_parameters()),
        Key.root(0),
        1,
    )


def gradient(method: Method, step: Step) -> list[Tensor]:
    """The gradient of the method's only term."""
    (term,) = method.phases[0].terms
    return list(
        torch.autograd.grad(
            term(step), list(step.params.values()), retain_graph=True, materialize_grads=True
        )
    )


def test_the_two_scales_differ_by_a_factor() -> None:
    step = step_on("resnet8")
    narrow, full = lipschitz_constants(step, SubNetworks(), 0.25)
    factor = float((step.ce / (narrow - full).square().mean()).detach())
    for ours, plain in zip(
        gradient(fedalign(0.7), step), gradient(fedalign(0.7, scale="paper"), step), strict=True
    ):
        # Relative to the largest entry: entries that cancel to nearly 0 have no exact digits.
        largest = float((factor * plain).abs().max())
        torch.testing.assert_close(ours, factor * plain, rtol=0, atol=1e-14 * largest)


@pytest.mark.parametrize(
    ("name", "args"),
    [("lstm", {"width": 32}), ("cnn", {}), ("lenet5", {}), ("mlp", {}), ("squeezenet", {})],
)
def test_fedalign_trains_only_the_last_feature_block(name: str, args: dict[str, Any]) -> None:
    """On text, images flattened inside or before the block, vectors, and parallel branches."""
    step = step_on(name, **args)
    method = fedalign(width=0.5)
    method.check(step.model)
    moved = {
        n.split(".")[0] for n, g in zip(step.params, gradient(method, step), strict=True) if g.any()
    }
    assert moved == {step.model.names[-2]}


def test_time_steps_of_text_are_positions() -> None:
    step = step_on("lstm", width=32)
    before, behind = (step.taps[name].detach() for name in ("lstm1", "lstm2"))
    expected = torch.linalg.matrix_norm(torch.einsum("btc,btd->bcd", before, behind) / 6, 2)
    _, full = lipschitz_constants(step, SubNetworks(), 0.5)
    # Ten iterations are only approximate on signed features.
    torch.testing.assert_close(full, expected, rtol=1e-3, atol=0)


def test_an_image_before_a_vector_is_pooled_to_one_position() -> None:
    image, vector = torch.rand(2, 3, 4, 5), torch.rand(2, 7)
    torch.testing.assert_close(
        transmitting_matrix(image, vector), image.mean((2, 3)).unsqueeze(2) * vector.unsqueeze(1)
    )


def test_zero_features_have_no_gradient_instead_of_nan() -> None:
    matrices = torch.zeros(2, 3, 4, requires_grad=True)
    spectral_norm(matrices).sum().backward()
    assert not matrices.grad.any()


@pytest.mark.parametrize("rows", [MAX_SQUARED_ROWS, MAX_SQUARED_ROWS + 1])
def test_the_spectral_norm_with_and_without_squaring(rows: int) -> None:
    matrices = torch.rand(2, rows, 40, dtype=torch.float64, generator=Key.root(0).generator())
    assert torch.allclose(
        spectral_norm(matrices), torch.linalg.svdvals(matrices)[:, 0], rtol=1e-12, atol=0
    )


def test_the_tighter_of_two_clips_applies() -> None:
    def final(method: Method, clip: float | None) -> str:
        return sha256(simulate(method, 2, solver=Sgd(lr=0.1, batch=4, clip=clip)).state.params)

    tight, loose = fedalign(0.0, clip=0.05), fedalign(0.0, clip=5.0)
    assert (
        final(tight, None)
        == final(tight, 5.0)
        == final(fedavg(), 0.05)
        == final(loose, 0.05)
        != final(fedavg(), None)
    )


def test_the_vectorised_engine_applies_the_methods_clip() -> None:
    simulation = make_simulation(fedalign(0.0, clip=0.05), build=bare)
    lanes = Vectorised(simulation.federation, InProcess(simulation.federation))
    assert lanes.why_not is None
    state = dict(initial_model(bare).state_dict())
    sent, tasks = Broadcast("train", 0, state), [ClientTask(c) for c in range(3)]
    alone, together = (
        dict(InProcess(simulation.federation).map(sent, tasks)),
        dict(lanes.map(sent, tasks)),
    )
    for client, reply in alone.items():
        for name, change in reply.uploads["model"].items():
            torch.testing.assert_close(
                together[client].uploads["model"][name], change, rtol=0, atol=1e-12
            )


def of_blocks(count: int) -> Chain:
    return Chain({f"block{i}": nn.Linear(20, 20) for i in range(count)})


def made(name: str) -> Chain:
    shape = (6,) if name == "lstm" else (3, 32, 32)
    return build(Spec(name), shape, CLASSES, Key.root(0))


ANY_SIZE = (
    "needs a convolutional model that takes images of any size (smallest=1 works with all models)"
)
REJECTED = {
    "too few blocks": (
        fedalign(),
        of_blocks(2),
        "needs a model of at least 3 blocks, but the model has the blocks block0, block1",
    ),
    "one block": (
        fedalign(),
        of_blocks(1),
        "needs a model of at least 3 blocks, but the model has only the block block0",
    ),
    "not narrower": (
        fedalign(width=0.99),
        of_blocks(3),
        "needs a last feature block that has fewer channels at width 0.99",
    ),
    "groups": (
        fedalign(),
        made("shufflenet"),
        "layer 'stage2.0.body.0' is a convolution in 3 groups, which cannot be slimmed",
    ),
    "groups too": (
        gradaug(),
        made("mobilenetv2"),
        "layer 'stage1.0.3' is a convolution in 32 groups, which cannot be slimmed",
    ),
    "no image": (
        gradaug(),
        made("lstm"),
        ANY_SIZE,
    ),
    "flattened": (
        gradaug(),
        made("mlp"),
        ANY_SIZE,
    ),
    "one size": (
        gradaug(),
        made("lenet5"),
        ANY_SIZE,
    ),
}


@pytest.mark.parametrize(("method", "chain", "sentence"), REJECTED.values(), ids=REJECTED)
def test_unsuitable_models_are_rejected_before_round_0(
    method: Method, chain: Chain, sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        method.check(chain)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "vgg9"])
def test_gradaug_works_with_models_that_pool(name: str) -> None:
    gradaug().check(made(name))


def test_gradaug_without_resizing_works_with_any_model() -> None:
    gradaug(smallest=1).check(made("lstm"))


@given(n=st.integers(1, 5), seed=st.integers(0, 1000), sizes=st.integers(1, 5))
def test_subnetworks_of_gradaug(n: int, seed: int, sizes: int) -> None:
    key = Key.root(seed)
    drawn = draw_subnetworks(key, n, 0.8, "floor", 0.625, sizes)
    widths = [width for width, _ in drawn]
    assert (
        len(drawn) == n
        and widths == sorted(widths, reverse=True)
        and widths[-1] == 0.8
        and widths[0] < 1
    )
    assert {round(32 * f) for _, f in drawn} <= {
        round(32 - 12 * i / max(1, sizes - 1)) for i in range(sizes)
    }
    assert draw_subnetworks(key, n, 0.8, "floor", 0.625, sizes) == drawn
    assert all(0.8 < width < 1 for width, _ in draw_subnetworks(key, n, 0.8, "all", 0.625, sizes))


def test_all_sizes_and_many_widths_are_drawn() -> None:
    drawn = [
        d for seed in range(60) for d in draw_subnetworks(Key.root(seed), 2, 0.8, "floor", 0.625, 4)
    ]
    assert {factor for _, factor in drawn} == {1.0, 0.875, 0.75, 0.625}
    assert len({width for width, _ in drawn}) == 61


def test_an_eager_gradient_has_the_same_value_and_gradient() -> None:
    a, b, unused = (
        torch.arange(3.0, dtype=torch.float64).add(i).requires_grad_() for i in range(3)
    )
    plain = (a.sin() * b).sum()
    expected = torch.autograd.grad(plain * 3 + a.sum(), (a, b))
    split = eager_gradient((a.sin() * b).sum(), (a, b, unused))
    assert torch.equal(split, plain)
    for got, want in zip(torch.autograd.grad(split * 3 + a.sum(), (a, b)), expected, strict=True):
        torch.testing.assert_close(got, want)
