"""Mixed precision on the CPU: torch's own loop bit for bit, and every method in bf16."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedloom.core import precision
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation
from fedloom.core.guard import Guard
from fedloom.core.key import Key
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.precision import Kind, Overflow, Precision
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.server import Absent, Reply
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.solver import Sgd, SGDRule
from fedloom.core.state import MemoryStore
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import why_unsupported
from fedloom.methods.fedavg import fedavg
from fedloom.methods.registry import entry, names
from fedloom.models.layers import make_norm
from fedloom.models.residual import residual_chain
from fedloom.settings.config import load
from support.clients import TensorClient

CPU = torch.device("cpu")


def small() -> Chain:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    return Chain({"stem": stem, "head": nn.Linear(64, 5)})


def client(size: int, factor: float = 1.0) -> TensorClient:
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(size, 1, 6, 6, generator=draws) * factor
    return TensorClient(x, torch.randint(5, (size,), generator=draws))


def trained(kind: Kind, data: TensorClient, steps: int, method: Method | None = None) -> Reply:
    """One client's reply after whole-batch steps, whose order of samples does not matter."""
    solver = Sgd(lr=0.1, batch=len(data), steps=steps, rule=SGDRule(0.9), precision=kind)
    federation = Federation(method or fedavg(), small, [data], solver, Key.root(0), classes=5)
    sent = Broadcast("train", 0, small().state_dict())
    ((_, reply),) = InProcess(federation).map(sent, [ClientTask(0)])
    assert isinstance(reply, Reply), reply
    return reply


def by_torch(dtype: torch.dtype, data: TensorClient, steps: int) -> dict[str, Tensor]:
    """The same steps with torch.autocast, torch.amp.GradScaler and torch.optim.SGD."""
    model, start = small(), small().state_dict()
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)  # type: ignore[attr-defined]
    order = data_order(data, steps)
    for positions in order:
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = F.cross_entropy(model(data.x[positions]), data.y[positions])
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
    return {n: t.detach() - start[n] for n, t in model.state_dict().items()}


def data_order(data: TensorClient, steps: int) -> list[Tensor]:
    """The positions of each step, from the keys of the client."""
    key = Key.root(0).fold("round", 0, "client", 0).fold("phase", 0)
    return [
        torch.randperm(len(data), generator=key.fold("epoch", epoch).generator())
        for epoch in range(steps)
    ]


@pytest.mark.parametrize(
    ("kind", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)], ids=["bf16", "fp16"]
)
def test_steps_are_those_of_torch(kind: Kind, dtype: torch.dtype) -> None:
    data = client(12)
    reply, expected = trained(kind, data, 4), by_torch(dtype, data, 4)
    for name, t in reply.uploads["model"].items():
        assert t.dtype is torch.float32
        assert torch.equal(t, expected[name]), name
    full = trained("full", data, 4).uploads["model"]
    assert not torch.equal(full["head.weight"], expected["head.weight"])


def test_steps_that_overflow_are_skipped_like_those_of_torch() -> None:
    """Inputs so large that gradients overflow at the first scales."""
    data = client(12, factor=100.0)
    reply, expected = trained("fp16", data, 8), by_torch(torch.float16, data, 8)
    assert all(torch.equal(t, expected[n]) for n, t in reply.uploads["model"].items())
    assert any(t.any() for t in expected.values())
    skipped = by_torch(torch.float16, data, 1)
    assert not any(t.any() for t in skipped.values())


def gradient(arithmetic: Precision, slope: float, weight: Tensor) -> Tensor:
    """Of slope * weight, as the solver takes it."""
    grads = torch.autograd.grad(arithmetic.scaled((weight * slope).sum()), [weight])
    return arithmetic.unscaled(grads)[0]


def test_the_scale_falls_at_an_overflow_and_grows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "GROWTH_INTERVAL", 2)
    arithmetic, weight = Precision("fp16", CPU), torch.ones(1, requires_grad=True)
    with pytest.raises(Overflow):
        gradient(arithmetic, torch.inf, weight)
    assert arithmetic.scale == 2.0**15
    for _ in range(2):
        g = gradient(arithmetic, 3.0, weight)
        assert g.item() == 3.0
    assert arithmetic.scale == 2.0**16


def test_at_the_smallest_scale_a_gradient_is_what_it_is() -> None:
    """Otherwise training that diverges would be skipped for ever, and nobody would know."""
    arithmetic, weight = Precision("fp16", CPU), torch.ones(1, requires_grad=True)
    for _ in range(16):
        with pytest.raises(Overflow):
            gradient(arithmetic, torch.inf, weight)
    g = gradient(arithmetic, torch.inf, weight)
    assert not torch.isfinite(g).any()


def test_an_overflow_undoes_what_a_rule_has_begun() -> None:
    arithmetic, weight = Precision("fp16", CPU), torch.ones(2, requires_grad=True)

    def step() -> str:
        with torch.no_grad():
            weight.add_(1)  # as SAM does before it asks for its second gradient
        raise Overflow

    assert arithmetic.step(step, [weight], "before") == "before"
    assert torch.equal(weight.detach(), torch.ones(2))
    assert arithmetic.skipped == 1


def test_skipped_steps_move_nothing() -> None:
    """lr_sum is how far a constant gradient would have moved the weights."""
    seen: list[float] = []

    def infinite(step: Step) -> Tensor:
        return step.ce * (torch.inf if step.number == 1 else 1.0)

    def record(outcome: Outcome) -> Extra:
        seen.append(outcome.descent("model").lr_sum)
        return Extra()

    trained("fp16", client(4), 3, Method("own", (Phase(loss=infinite),), (record,)))
    assert seen == [pytest.approx(SGDRule(0.9).effective_steps(2) * 0.1)]


def test_a_client_whose_steps_are_all_skipped_fails() -> None:
    def infinite(step: Step) -> Tensor:
        return step.ce * torch.inf

    solver = Sgd(0.1, batch=4, steps=3, precision="fp16")
    method = Method("own", (Phase(loss=infinite),))
    federation = Federation(method, small, [client(4)], solver, Key.root(0), classes=5)
    sent = Broadcast("train", 0, small().state_dict())
    ((_, answer),) = InProcess(federation).map(sent, [ClientTask(0)])
    assert isinstance(answer, Absent)
    assert "overflows in every local step (3), so nothing is trained" in answer.reason


def residual() -> Chain:
    torch.manual_seed(0)
    return residual_chain((3, 8, 8), 5, (1, 1), (16, 16), make_norm("group", 2))


def image_clients() -> list[TensorClient]:
    draws = torch.Generator().manual_seed(2)
    rare = torch.tensor([0] * 8 + [1] * 4 + [2] * 2 + [3, 4])
    return [TensorClient(torch.randn(16, 3, 8, 8, generator=draws), rare) for _ in range(3)]


@pytest.mark.parametrize("name", names())
def test_every_method_trains_in_bf16(name: str) -> None:
    method = entry(name).make()
    build: Callable[[], Chain] = lambda: method.reshaped(residual(), Key.root(0))  # noqa: E731
    solver = Sgd(batch=8, steps=1, precision="bf16")
    federation = Federation(method, build, image_clients(), solver, Key.root(0), classes=5)
    simulation = Simulation(federation, everyone(), InProcess(federation), Guard(strict=True))
    state = init_state(simulation, build())
    *_, (state, report) = rounds(simulation, state, MemoryStore(), until=1)
    assert report.skipped is None
    assert all(t.dtype is not torch.bfloat16 for t in state.tensors().values())
    if method.finale:
        sent = Broadcast("personalise", 1, state.params, state.shared)
        own = simulation.answer(sent, ClientTask(0))
        assert all(torch.isfinite(t).all() for t in own.values())


def test_the_vectorised_engine_leaves_it_to_others() -> None:
    solver = Sgd(batch=4, precision="bf16")
    federation = Federation(fedavg(), small, [client(4)], solver, Key.root(0), classes=5)
    assert "precision='bf16'" in (why_unsupported(federation, small()) or "")


def test_weights_in_float64_are_rejected() -> None:
    with pytest.raises(UserError, match="set dtype='float32' or precision='full'"):
        load({"dtype": "float64", "precision": "bf16"})
