"""What cannot be vectorised runs on the exact engine: the same bits, and a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.federation import Federation
from fedloom.core.method import Method, Phase
from fedloom.core.optimisers import AdamRule, SGDRule, SharpnessAware
from fedloom.core.params import sha256
from fedloom.core.select import norms
from fedloom.core.solver import Sgd
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised
from fedloom.methods.fedavg import fedavg
from support.clients import tiny_clients
from support.descent_rules import Maml
from support.models import CLASSES, FEATURES, nested, noisy
from support.vectorised import (
    SOLVER,
    CountingEngine,
    assert_matches_inprocess,
    make_federation,
    method_with_term,
    run_rounds,
)


def two_phases() -> Method:
    return Method("two", (Phase(), Phase(slot="own")))


def entropic(step: Step) -> Tensor:
    p = step.logits.softmax(1)
    return (p * p.log()).sum(1).mean()


def drawing(step: Step) -> Tensor:
    noise = torch.randn(1, generator=step.key.generator(), dtype=torch.float64)
    return noise[0] * step.vector.sum()


def grudging(step: Step) -> Tensor:
    return sum(step.job.memory("grudge")[n].sum() for n in step.params) * step.vector.sum()


def restless(step: Step) -> Tensor:
    return torch.dot(step.vector, step.vector_of(lambda job: job.received))


def personal(step: Step) -> Tensor:
    return step.job.client * step.vector.square().sum()


REJECTED: dict[str, tuple[Federation, str]] = {
    "phases": (make_federation(two_phases()), "method 'two' has 2 phases"),
    "mix": (
        make_federation(Method("m", (Phase(mix=lambda x, y, job, key: (x, y)),))),
        "method 'm' mixes batches",
    ),
    "private": (
        make_federation(Method("p", private=norms), build=nested),
        "method 'p' keeps tensors private",
    ),
    "start": (
        make_federation(Method("s", (Phase(start="own"),))),
        "method 's' starts from slot 'own'",
    ),
    "rule": (
        make_federation(fedavg(), solver=Sgd(batch=2, rule=Maml(0.1))),
        "makes plain SGD steps only",
    ),
    "adam": (make_federation(fedavg(), solver=Sgd(batch=2, rule=AdamRule())), "no adam"),
    "sam": (
        make_federation(fedavg(), solver=Sgd(batch=2, rule=SharpnessAware(SGDRule(), 0.1))),
        "no sam",
    ),
    "solver": (
        make_federation(
            fedavg(), solver=lambda model, objective, job, key: SOLVER(model, objective, job, key)
        ),
        "makes plain SGD steps only",
    ),
    "reset": (make_federation(fedavg(), solver=replace(SOLVER, reset=False)), "train.reset=false"),
    "batch norm": (make_federation(fedavg(), build=nested), "the model has batch norm"),
    "dropout": (make_federation(fedavg(), build=noisy), "the model has dropout"),
    "rows": (
        make_federation(method_with_term(entropic)),
        "method 'own' on this model gives other numbers vectorised than alone, by",
    ),
    "client": (
        make_federation(method_with_term(personal)),
        "gives other numbers vectorised than alone",
    ),
    "draws": (
        make_federation(method_with_term(drawing)),
        "cannot be vectorised (PerClientAccess: a loss uses one client's key",
    ),
    "memory": (
        make_federation(method_with_term(grudging)),
        "cannot be vectorised (PerClientAccess: a loss uses one client's key, data or memories",
    ),
    "endless": (
        make_federation(method_with_term(restless)),
        "cannot be vectorised (PerClientAccess: a loss calls job.once for more than",
    ),
}


@pytest.mark.parametrize(("federation", "sentence"), REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_vectorised_runs_on_the_fallback(
    federation: Federation, sentence: str
) -> None:
    counted = CountingEngine(InProcess(federation), [])
    engine = Vectorised(federation, counted)
    assert engine.why_not is not None
    assert sentence in engine.why_not
    assert "\n" not in engine.why_not
    exact, _, _ = run_rounds(federation, InProcess(federation), 1)
    state, _, _ = run_rounds(federation, engine, 1)
    assert sha256(state.params) == sha256(exact.params)
    assert counted.works == ["train"]


@pytest.mark.parametrize(
    ("channels", "batch", "pays"), [(16, 10, True), (17, 10, False), (16, 11, False)]
)
def test_convolutions_are_vectorised_only_where_that_is_faster(
    channels: int, batch: int, pays: bool
) -> None:
    def model() -> Chain:
        conv = nn.Sequential(
            nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, channels, FEATURES), nn.Flatten()
        )
        return Chain({"conv": conv, "head": nn.Linear(channels, CLASSES)}).double()

    federation = make_federation(fedavg(), solver=Sgd(lr=0.1, batch=batch), build=model)
    if pays:
        assert_matches_inprocess(federation)
    else:
        why_not = Vectorised(federation, InProcess(federation)).why_not
        assert (
            why_not
            == "on a CPU the vectorised engine is slower for convolutions of more than 16 channels "
            "or batches of more than 10"
        )


class Shuffles(nn.Module):
    """A layer that draws without being called dropout."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


class Counts(nn.Module):
    """A layer that counts its calls, as a norm counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1  # type: ignore[operator]
        return x


class Branches(nn.Module):
    """A layer that branches on its input, which vmap cannot."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else 2 * x


@pytest.mark.parametrize("layer", [Shuffles, Counts, Branches])
def test_a_layer_that_vmap_would_get_wrong_is_rejected(layer: type[nn.Module]) -> None:
    def model() -> Chain:
        return Chain(
            {"stem": nn.Linear(FEATURES, 5), "odd": layer(), "head": nn.Linear(5, CLASSES)}
        ).double()

    federation = make_federation(fedavg(), build=model)
    assert Vectorised(federation, InProcess(federation)).why_not is not None


def test_nan_differences_are_rejected() -> None:
    clients = [replace(c, x=c.x * torch.nan) for c in tiny_clients()]
    federation = make_federation(fedavg(), clients)
    assert "by nan in float64" in (Vectorised(federation, InProcess(federation)).why_not or "")
