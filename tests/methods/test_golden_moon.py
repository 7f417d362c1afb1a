"""MOON against numbers from FedAlign's authors' code.

Loss, gradient, one step, the first round, and the model with its projection.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.job import Job
from fedloom.core.key import Key
from fedloom.core.method import Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import Params
from fedloom.core.solver import Objective, Sgd
from fedloom.core.spec import Spec
from fedloom.core.step import Step
from fedloom.losses.contrastive import contrastive_loss
from fedloom.methods.moon import moon
from fedloom.models.registry import build
from support.clients import TensorClient
from support.golden import GOLDEN, golden
from support.golden_problems import fixed_order
from support.models import FEATURES, nested, noisy
from support.simulate import reshaped_build, simulate, standalone_job

MOON = golden("fedalign/c_moon")
STUB = moon(float(MOON["mu"]), float(MOON["tau"]), projection=0)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12 * float(expected.abs().max()))


def stub() -> Chain:
    """z = x W, logits = z V."""
    return Chain(
        {"body": nn.Linear(12, 6, bias=False), "head": nn.Linear(6, 5, bias=False)}
    ).double()


def weights(matrix: str) -> Params:
    return {"body.weight": MOON[matrix].T.contiguous(), "head.weight": MOON["V0"].T.contiguous()}


def client(memories: dict[str, Params]) -> tuple[Chain, Phase, Job]:
    """The local model, its phase, and the job of a client that received the golden global model."""
    job = standalone_job(
        reshaped_build(STUB, stub),
        weights("W_global"),
        TensorClient(MOON["x"], MOON["y"]),
        memories=memories,
    )
    return job.model_pool.load("model", weights("W0")), STUB.phases[0], job


def step(memories: dict[str, Params]) -> tuple[Tensor, Tensor]:
    """The total loss and its gradient with respect to W."""
    model, phase, job = client(memories)
    total = phase.total(
        Step(MOON["x"], MOON["y"], model, job, dict(model.named_parameters()), Key.root(0), 1)
    )
    return total, torch.autograd.grad(total, model.get_parameter("body.weight"))[0].T


def after(memories: dict[str, Params]) -> Params:
    """The weights after one step of the authors' optimiser."""
    model, phase, job = client(memories)
    rule = SGDRule(momentum=0.9, nesterov=True, weight_decay=float(MOON["wd"]))
    Sgd(float(MOON["lr"]), batch=16, steps=1, rule=rule)(
        model, Objective(phase.total, fixed_order(16)), job, Key.root(0)
    )
    return {n: t.detach().T for n, t in model.state_dict().items()}


def test_the_contrastive_loss() -> None:
    close(
        contrastive_loss(MOON["z"], MOON["z_global"], MOON["z_prev"], float(MOON["tau"])),
        MOON["con_loss"],
    )


def test_features_and_logits() -> None:
    model, _, _ = client({})
    taps = model.taps(MOON["x"])
    close(taps["projection"].detach(), MOON["z"])
    close(taps["head"].detach(), MOON["logits"])


@pytest.mark.parametrize("start", ["", "firstround_"], ids=["with a last model", "the first time"])
def test_a_step(start: str) -> None:
    memories = {} if start else {"moon": weights("W_prev")}
    total, gradient = step(memories)
    close(total.detach(), MOON[f"{start}total_loss"])
    close(gradient, MOON[f"{start}grad_W"])
    moved = after(memories)
    close(moved["body.weight"], MOON[f"{start}W_after"])
    close(moved["head.weight"], MOON[f"{start}V_after"])


def test_skipping_the_teachers_in_the_first_round_changes_nothing() -> None:
    """With the received model as both teachers, the gradients cancel exactly."""
    (skipped, ours), (computed, theirs) = step({}), step({"moon": weights("W_global")})
    assert torch.equal(ours, theirs)
    close(skipped.detach(), computed.detach())
    close(
        skipped.detach() - MOON["firstround_ce_loss"],
        torch.tensor(math.log(2), dtype=torch.float64),
    )


def our_name(official: str) -> str:
    """Our names of the projection and the classifier."""
    return {"p1": "projection.fc1", "p2": "projection.fc2", "fc": "head.fc"}.get(
        official.partition(".")[0], ""
    )


@pytest.mark.parametrize(
    ("tag", "word", "shape", "classes"),
    [
        ("r56_100_moon", Spec("resnet56"), (3, 32, 32), 100),
        (
            "r18_200_moon",
            Spec("resnet18", {"stem": "imagenet", "norm": "batch"}),
            (3, 224, 224),
            200,
        ),
    ],
)
def test_the_model_with_its_projection(
    tag: str, word: Spec, shape: tuple[int, ...], classes: int
) -> None:
    with np.load(GOLDEN / "fedalign/i_architecture.npz", allow_pickle=False) as known:
        shapes = {
            str(n): tuple(s)
            for n, s in zip(known[f"{tag}_names"], known[f"{tag}_shapes"].tolist(), strict=True)
        }
        size = int(known[f"{tag}_n_params"])
    chain = moon().reshaped(build(word, shape, classes, Key.root(0), device="meta"), Key.root(0))
    found = {n: (*t.shape, *[0] * (4 - t.dim())) for n, t in chain.state_dict().items()}
    assert sum(p.numel() for p in chain.parameters()) == size
    assert sorted(found.values()) == sorted(shapes.values())
    added = {n: s for n, s in shapes.items() if our_name(n)}
    assert {n: s for n, s in found.items() if n.startswith(("projection", "head"))} == {
        our_name(n) + "." + n.partition(".")[2]: s for n, s in added.items()
    }


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (1, 8, 8)),
        ("lenet5", (1, 28, 28)),
        ("vgg", (3, 8, 8)),
        ("resnet8", (3, 8, 8)),
        ("lstm", (5,)),
    ],
)
@pytest.mark.parametrize("width", [0, 16])
def test_any_head_that_ends_with_a_linear_layer_gets_a_projection(
    name: str, shape: tuple[int, ...], width: int
) -> None:
    plain, chain = (build(Spec(name), shape, 7, Key.root(3)) for _ in range(2))
    chain = moon(projection=width).reshaped(chain, Key.root(3)).eval()
    x = torch.ones(2, *shape, dtype=torch.int64 if name == "lstm" else torch.float32)
    taps = chain.taps(x)
    assert taps["head"].shape == (2, 7)
    assert taps["projection"].dim() == 2
    if width:
        assert taps["projection"].shape == (2, width)
    else:
        assert torch.equal(taps["head"], plain.eval()(x))


def test_a_projection_depends_on_its_key_only() -> None:
    chains = [
        moon().reshaped(build(Spec("mlp"), (4,), 3, Key.root(0)), Key.root(seed))
        for seed in (1, 1, 2)
    ]
    drawn = [chain.get_parameter("head.fc.weight") for chain in chains]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("name", ["mobilenetv2", "squeezenet"])
def test_a_head_without_a_final_linear_layer_is_rejected(name: str) -> None:
    with pytest.raises(
        UserError,
        match=r"^method 'moon': needs a last block that ends with a linear layer, .* blocks stem, ",
    ):
        moon().reshaped(build(Spec(name), (3, 32, 32), 10, Key.root(0)), Key.root(0))


@pytest.mark.parametrize("norm", ["batch", "running"])
def test_teachers_do_not_change_the_statistics(norm: str) -> None:
    """Only the model's own forward passes update what is uploaded: its counter equals the steps."""
    result = simulate(moon(1.0, projection=4, norm=norm), 3, build=nested)
    for reply in result.replies:
        assert int(reply.uploads["model"]["body.0.unit.1.num_batches_tracked"]) == reply.steps


def test_teachers_use_no_randomness() -> None:
    """With almost no weight, MOON equals FedAvg on its model, although that has dropout."""
    almost, plain = (
        simulate(moon(mu, projection=4), 3, build=noisy).state.params for mu in (1e-13, 0.0)
    )
    for name, tensor in plain.items():
        torch.testing.assert_close(almost[name], tensor, rtol=0, atol=1e-10)


def test_the_statistics_of_the_teachers_matter() -> None:
    batch, running = (
        simulate(moon(1.0, projection=4, norm=norm), 3, build=nested).state.params
        for norm in ("batch", "running")
    )
    assert not torch.allclose(batch["stem.0.weight"], running["stem.0.weight"], rtol=0, atol=1e-6)


def test_a_client_remembers_its_own_last_model() -> None:
    result = simulate(moon(projection=4), 2)
    for client, reply in result.answers[-1].items():
        sent = simulate(moon(projection=4), 1).state.params
        last = result.store.recall(client)["moon"]
        assert last.keys() == sent.keys()
        for name, change in reply.uploads["model"].items():
            torch.testing.assert_close(last[name], sent[name] + change, rtol=0, atol=1e-12)
    assert last["stem.0.weight"].shape[1] == FEATURES
