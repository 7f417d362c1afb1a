"""Personalised methods piece by piece: what stays at home, whose model counts, and what is done at last."""

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
from fedloom.methods.ros import balanced
from fedloom.models.registry import build as build_model
from support.clients import TensorClient
from support.models import CLASSES, NORMS, bare, nested
from support.simulate import simulate


def resnet() -> Chain:
    """Its norms hide in the bodies and the shortcuts of its blocks."""
    return build_model(
        Spec("resnet8", {"norm": "batch", "width": 4}),
        (3, 8, 8),
        CLASSES,
        Key.root(0),
        torch.float64,
    )


def pictures() -> list[TensorClient]:
    draws = torch.Generator().manual_seed(1)
    return [
        TensorClient(
            torch.randn(6, 3, 8, 8, generator=draws, dtype=torch.float64), torch.arange(6) % CLASSES
        )
        for _ in range(3)
    ]


def test_fedbn_keeps_every_norm_of_a_nested_resnet_at_home() -> None:
    chain = resnet()
    norms = {
        f"{layer}.{t}"
        for layer, m in chain.named_modules()
        if isinstance(m, nn.BatchNorm2d)
        for t in m.state_dict()
    }
    assert any("shortcut" in name for name in norms)
    result = simulate(fedbn(), 2, build=resnet, clients=pictures(), sampler=everyone())
    for reply in result.replies:
        assert reply.uploads["model"].keys() == chain.state_dict().keys() - norms
        assert reply.memories["private"].keys() == norms
    ours, theirs = (result.personal(client) for client in (0, 1))
    numbers = {
        name for name, t in ours.items() if t.is_floating_point()
    }  # both have seen as many batches
    assert {
        name for name in numbers if not torch.equal(ours[name], theirs[name])
    } == norms & numbers


def test_lgfedavg_sends_the_head_and_nothing_else() -> None:
    result = simulate(lgfedavg(), 2, build=resnet, clients=pictures(), sampler=everyone())
    assert {tuple(r.uploads["model"]) for r in result.replies} == {
        ("head.fc.weight", "head.fc.bias")
    }
    ours, theirs = (result.personal(client) for client in (0, 1))
    assert torch.equal(ours["head.fc.weight"], theirs["head.fc.weight"])
    assert not torch.equal(ours["stem.conv.weight"], theirs["stem.conv.weight"])


@pytest.mark.parametrize("count", [1, 2])
def test_head_and_representation_make_the_model(count: int) -> None:
    chain = nested()
    assert head(count)(chain) | representation(count)(chain) == chain.state_dict().keys()
    assert not head(count)(chain) & representation(count)(chain)


@pytest.mark.parametrize("name", ["lgfedavg", "fedper", "fedrep"])
def test_a_model_without_a_block_in_front_of_the_head_is_refused(name: str) -> None:
    with pytest.raises(
        UserError,
        match=r"needs a model of at least 4 blocks, but the model has the blocks stem, body, head",
    ):
        registry.build(parse(f"{name}(blocks=3)")).check(nested())


def test_the_model_of_pfedme_is_theta_and_not_w() -> None:
    result = simulate(pfedme(), 1)
    for reply in result.replies:
        memories, w = (
            result.personal(reply.client),
            {n: result.start.params[n] + d for n, d in reply.uploads["model"].items()},
        )
        assert sha256(memories) == sha256(reply.memories["theta"])
        assert float((memories["head.weight"] - w["head.weight"]).abs().max()) > 1e-4
        for name in (
            n for n in NORMS if "running" in n
        ):  # of its own training: a fresh norm would see mean 0 and variance 1
            torch.testing.assert_close(memories[name], w[name], rtol=0, atol=1e-12)


def test_pfedme_refuses_steps_behind_theta() -> None:
    with pytest.raises(
        UserError,
        match=r"pfedme: lr=0.1 times lam=15 is 1.5, and w would overshoot theta; keep it below 1",
    ):
        pfedme(lr=0.1)


@pytest.mark.parametrize(
    ("delta", "expected"), [(None, 1 - 0.1 * 0.5), (0.001, 1 - 0.1 * (0.5 - 0.5 * 0.5))]
)
def test_a_step_of_perfedavg_by_hand(delta: float | None, expected: float) -> None:
    """On w^2/2 from w = 1 with alpha 1/2 the gradient behind the alpha-step is 1/2, and the Hessian 1; the step is made from w."""
    w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    Maml(0.5, delta).step([w], lambda batch: [w.detach().clone()], 0.1, None)
    assert w.item() == pytest.approx(expected, abs=1e-12)


def test_perfedavg_without_adaptation_is_local_sgd() -> None:
    """In full batches of one order, on a model without statistics, bit for bit; and then nothing is left to adapt."""
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
def test_oversampling_draws_as_many_samples_as_there_are(labels: list[int], seed: int) -> None:
    data = TensorClient(torch.zeros(len(labels), 1), torch.tensor(labels))
    drawn = balanced(data, torch.Generator().manual_seed(seed))
    assert len(drawn) == len(labels)
    assert set(drawn.tolist()) <= set(range(len(labels)))


def test_oversampling_gives_every_class_of_a_client_its_share() -> None:
    """The client of FedAFA's figure 3 (b), over and over; classes it lacks have none."""
    counts = {0: 8, 1: 933, 5: 9, 6: 6}
    data = TensorClient(
        torch.zeros(956, 1), torch.cat([torch.full((n,), c) for c, n in counts.items()])
    )
    draws = torch.Generator().manual_seed(3)
    shares = torch.bincount(
        torch.cat([data.y[balanced(data, draws)] for _ in range(50)]), minlength=8
    ) / (50 * 956)
    assert shares.tolist() == pytest.approx([0.25, 0.25, 0, 0, 0, 0.25, 0.25, 0], abs=0.01)


def test_crt_moves_the_head_and_nothing_else() -> None:
    result = simulate(crt(lr=0.1), 1)
    moved = {n for n, t in result.personal(0).items() if not torch.equal(t, result.state.params[n])}
    assert moved == {"head.weight", "head.bias"}


def test_a_fresh_classifier_is_the_clients_own_draw() -> None:
    """A learning rate too small to matter shows what it starts from: torch's own first weights, within 1/sqrt(inputs)."""
    result = simulate(crt(fresh=True, lr=1e-15, decay=0.0), 1)
    heads = [result.personal(client)["head.weight"] for client in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1]) and not torch.allclose(heads[0], heads[2])
    assert not torch.allclose(heads[0], result.state.params["head.weight"])
    assert float(heads[0].abs().max()) <= 5**-0.5


def test_fine_tuning_sends_nothing_and_remembers_nothing() -> None:
    result = simulate(finetune(), 2)
    assert all(result.personal(c).keys() == result.state.params.keys() for c in range(8))
    assert all(result.store.recall(c) == {} for c in range(8))
