"""Parts of personalised methods: private tensors, evaluated models, and finales."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.sampler import everyone
from fedloom.core.select import head, representation
from fedloom.core.solver import Sgd
from fedloom.core.spec import Spec, parse
from fedloom.methods import registry
from fedloom.methods.crt import crt
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedbn import fedbn
from fedloom.methods.finetune import finetune
from fedloom.methods.lgfedavg import lgfedavg
from fedloom.methods.perfedavg import Maml, perfedavg
from fedloom.methods.pfedme import pfedme
from fedloom.methods.ros import class_balanced
from fedloom.models.registry import build as build_model
from support.clients import TensorClient
from support.models import CLASSES, NORMS, bare, nested
from support.simulate import simulate


def resnet() -> Chain:
    """A ResNet with norms nested in the bodies and shortcuts of its blocks."""
    return build_model(
        Spec("resnet8", {"norm": "batch", "width": 4}),
        (3, 8, 8),
        CLASSES,
        Key.root(0),
        torch.float64,
    )


def image_clients() -> list[TensorClient]:
    draws = torch.Generator().manual_seed(1)
    return [
        TensorClient(
            torch.randn(6, 3, 8, 8, generator=draws, dtype=torch.float64), torch.arange(6) % CLASSES
        )
        for _ in range(3)
    ]


def test_fedbn_keeps_every_norm_of_a_nested_resnet_private() -> None:
    chain = resnet()
    norms = {
        f"{layer}.{t}"
        for layer, m in chain.named_modules()
        if isinstance(m, nn.BatchNorm2d)
        for t in m.state_dict()
    }
    assert any("shortcut" in name for name in norms)
    result = simulate(fedbn(), 2, build=resnet, clients=image_clients(), sampler=everyone())
    for reply in result.replies:
        assert reply.uploads["model"].keys() == chain.state_dict().keys() - norms
        assert reply.memories["private"].keys() == norms
    ours, theirs = (result.personal(client) for client in (0, 1))
    # Without the counters: both clients have seen equally many batches.
    numbers = {name for name, t in ours.items() if t.is_floating_point()}
    assert {
        name for name in numbers if not torch.equal(ours[name], theirs[name])
    } == norms & numbers


def test_lgfedavg_uploads_only_the_head() -> None:
    result = simulate(lgfedavg(), 2, build=resnet, clients=image_clients(), sampler=everyone())
    assert {tuple(r.uploads["model"]) for r in result.replies} == {
        ("head.fc.weight", "head.fc.bias")
    }
    ours, theirs = (result.personal(client) for client in (0, 1))
    assert torch.equal(ours["head.fc.weight"], theirs["head.fc.weight"])
    assert not torch.equal(ours["stem.conv.weight"], theirs["stem.conv.weight"])


@pytest.mark.parametrize("count", [1, 2])
def test_head_and_representation_partition_the_model(count: int) -> None:
    chain = nested()
    assert head(count)(chain) | representation(count)(chain) == chain.state_dict().keys()
    assert not head(count)(chain) & representation(count)(chain)


@pytest.mark.parametrize("name", ["lgfedavg", "fedper", "fedrep"])
def test_a_model_without_a_block_before_the_head_is_rejected(name: str) -> None:
    with pytest.raises(
        UserError,
        match=r"needs a model of at least 4 blocks, but the model has the blocks stem, body, head",
    ):
        registry.build(parse(f"{name}(blocks=3)")).check(nested())


def test_the_personal_model_of_pfedme_is_theta_not_w() -> None:
    result = simulate(pfedme(), 1)
    for reply in result.replies:
        memories, w = (
            result.personal(reply.client),
            {n: result.start.params[n] + d for n, d in reply.uploads["model"].items()},
        )
        assert sha256(memories) == sha256(reply.memories["theta"])
        assert float((memories["head.weight"] - w["head.weight"]).abs().max()) > 1e-4
        # Statistics of its own training: a new norm would have mean 0 and variance 1.
        for name in (n for n in NORMS if "running" in n):
            torch.testing.assert_close(memories[name], w[name], rtol=0, atol=1e-12)


def test_pfedme_rejects_steps_beyond_theta() -> None:
    with pytest.raises(
        UserError,
        match=r"pfedme: lr=0.1 times lam=15 is 1.5, so w would overshoot theta; "
        r"keep the product below 1",
    ):
        pfedme(lr=0.1)


@pytest.mark.parametrize(
    ("delta", "expected"), [(None, 1 - 0.1 * 0.5), (0.001, 1 - 0.1 * (0.5 - 0.5 * 0.5))]
)
def test_a_step_of_perfedavg_by_hand(delta: float | None, expected: float) -> None:
    """On w^2/2 from w = 1 with alpha 1/2.

    The gradient after the alpha-step is 1/2 and the Hessian is 1; the step starts from w.
    """
    w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    Maml(0.5, delta).step([w], lambda batch: [w.detach().clone()], 0.1, None)
    assert w.item() == pytest.approx(expected, abs=1e-12)


def test_perfedavg_without_adaptation_is_local_sgd() -> None:
    """In full batches of one order, on a model without statistics, bit for bit.

    The final adaptation then changes nothing.
    """
    plain = simulate(ordered(fedavg()), 2, build=bare, solver=Sgd(lr=0.05, batch=21, steps=3))
    for variant in ("fo", "hf"):
        ours = simulate(
            ordered(perfedavg(0.0, 0.05, variant, steps=3)), 2, build=bare, solver=Sgd(batch=21)
        )  # type: ignore[arg-type]
        assert sha256(ours.state.params) == sha256(plain.state.params) == sha256(ours.personal(0))


def ordered(plain: Method) -> Method:
    def order(data: Any, generator: torch.Generator) -> torch.Tensor:
        return torch.arange(len(data))

    return replace(plain, phases=tuple(replace(p, order=order) for p in plain.phases))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 99))
def test_oversampling_draws_as_many_samples_as_the_client_has(labels: list[int], seed: int) -> None:
    data = TensorClient(torch.zeros(len(labels), 1), torch.tensor(labels))
    drawn = class_balanced(data, torch.Generator().manual_seed(seed))
    assert len(drawn) == len(labels)
    assert set(drawn.tolist()) <= set(range(len(labels)))


def test_oversampling_draws_every_class_of_a_client_equally_often() -> None:
    """The client of FedAFA's figure 3 (b), over 50 epochs; classes it lacks are not drawn."""
    counts = {0: 8, 1: 933, 5: 9, 6: 6}
    data = TensorClient(
        torch.zeros(956, 1), torch.cat([torch.full((n,), c) for c, n in counts.items()])
    )
    draws = torch.Generator().manual_seed(3)
    shares = torch.bincount(
        torch.cat([data.y[class_balanced(data, draws)] for _ in range(50)]), minlength=8
    ) / (50 * 956)
    assert shares.tolist() == pytest.approx([0.25, 0.25, 0, 0, 0, 0.25, 0.25, 0], abs=0.01)


def test_crt_trains_only_the_head() -> None:
    result = simulate(crt(lr=0.1), 1)
    moved = {n for n, t in result.personal(0).items() if not torch.equal(t, result.state.params[n])}
    assert moved == {"head.weight", "head.bias"}


def test_a_fresh_classifier_is_drawn_per_client() -> None:
    """A negligible learning rate shows the initial weights: PyTorch's, within 1/sqrt(inputs)."""
    result = simulate(crt(fresh=True, lr=1e-15, decay=0.0), 1)
    heads = [result.personal(client)["head.weight"] for client in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1]) and not torch.allclose(heads[0], heads[2])
    assert not torch.allclose(heads[0], result.state.params["head.weight"])
    assert float(heads[0].abs().max()) <= 5**-0.5


def test_fine_tuning_stores_nothing() -> None:
    result = simulate(finetune(), 2)
    assert all(result.personal(c).keys() == result.state.params.keys() for c in range(8))
    assert all(result.store.recall(c) == {} for c in range(8))
