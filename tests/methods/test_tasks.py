"""Every method on other tasks than classification: it trains, or is rejected before round 0."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.learning_task import TASKS
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.sampler import uniform
from fedloom.core.solver import Sgd
from fedloom.core.spec import parse
from fedloom.experiment.reuse import leaves_rounds_unchanged
from fedloom.experiment.run_task import loss_conflicts
from fedloom.methods.ditto import ditto
from fedloom.methods.fedavg import fedavg
from fedloom.methods.feddyn import feddyn
from fedloom.methods.fedprox import fedprox
from fedloom.methods.registry import build, check_task, entry, methods_for, names
from fedloom.methods.scaffold import scaffold
from fedloom.settings.config import load
from support import oracles, personal_oracles
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES, FEATURES, WIDTH, Build, bare, nested, residual
from support.oracles import State, World
from support.simulate import SimulationResult, initial_model, saved_and_loaded, simulate

ROUNDS = 3
DISTILLATION = ["fedgkd", "fedmlb", "fedntd", "kd"]
CLASSIFICATION_ONLY = [
    *("crt", "fedafa", "fedmix", "globalmixup", "gradaug", "m2m", "meanmix", "mixup"),
    *("naivemix", "noisemix", "ros"),
]
WITH_CLASSES = [*CLASSIFICATION_ONLY, *DISTILLATION]


def squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    gaps = [a - b for a, b in zip(model(x).flatten(), y.flatten(), strict=True)]
    return sum(gap * gap for gap in gaps) / len(gaps)  # type: ignore[return-value]


def binary_cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    p = 1 / (1 + torch.exp(-model(x)))
    return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).sum() / y.numel()


LOSSES = {"regression": squared_error, "multilabel": binary_cross_entropy}
every_task = pytest.mark.parametrize("task", LOSSES)


def clients_for(task: str) -> list[TensorClient]:
    """The clients of the other tests, with as many targets or labels as classes."""
    made = []
    for client in tiny_clients():
        y = torch.stack([client.x[:, n : n + 2].sum(1) / 3 for n in range(CLASSES)], 1)
        made.append(TensorClient(client.x, y if task == "regression" else (y > 0).double()))
    return made


def run(method: Method, task: str, **given: object) -> SimulationResult:
    clients = given.pop("clients", None) or clients_for(task)
    return simulate(method, ROUNDS, task=TASKS[task], clients=clients, **given)


def world_of(result: SimulationResult, task: str, build: Build) -> World:
    federation = result.simulation.federation
    return World(build, clients_for(task), federation.key, uniform(3), loss=LOSSES[task])


Oracle = Callable[[World, State], State]
METHODS_AND_ORACLES: dict[str, tuple[Method, Oracle]] = {
    "fedavg": (fedavg(), lambda w, s: oracles.fedavg(w, s, ROUNDS)),
    "fedprox": (fedprox(0.7), lambda w, s: oracles.fedavg(w, s, ROUNDS, mu=0.7)),
    "scaffold": (scaffold(), lambda w, s: oracles.scaffold(w, s, ROUNDS)),
    "feddyn": (feddyn(0.3), lambda w, s: oracles.feddyn(w, s, ROUNDS, 0.3)),
    "ditto": (ditto(0.5), lambda w, s: personal_oracles.ditto(w, s, ROUNDS, 0.5)[0]),
}


@every_task
@pytest.mark.parametrize("build", [bare, nested])
@pytest.mark.parametrize("name", METHODS_AND_ORACLES)
def test_it_equals_its_oracle(name: str, build: Build, task: str) -> None:
    method, oracle = METHODS_AND_ORACLES[name]
    result = run(method, task, build=build)
    expected = oracle(world_of(result, task, build), result.start.params)
    for tensor, value in expected.items():
        assert torch.allclose(result.state.params[tensor].double(), value.double(), atol=1e-10)


@every_task
def test_a_personal_model_equals_its_oracle(task: str) -> None:
    result = run(ditto(0.5), task)
    _, own = personal_oracles.ditto(
        world_of(result, task, nested), result.start.params, ROUNDS, 0.5
    )
    for client, expected in enumerate(own):
        for name, tensor in result.personal(client).items():
            assert torch.allclose(tensor.double(), expected[name].double(), atol=1e-10)


def needed_model(method: str) -> Build:
    """A model with what the method needs: residual branches, or blocks that can be slimmed."""
    if method == "stochdepth":
        return residual
    return wide if method == "fedalign" else nested


def wide() -> Chain:
    blocks = {
        "one": nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU()),
        "two": nn.Sequential(nn.Linear(32, 32), nn.ReLU()),
        "head": nn.Linear(32, CLASSES),
    }
    return Chain(blocks).double()


@every_task
@pytest.mark.parametrize("name", [n for n in names() if n not in WITH_CLASSES])
def test_it_trains_and_resumes(name: str, task: str) -> None:
    method = build(parse(name))
    clients = clients_for(task)
    given = {"build": needed_model(name), "clients": clients}
    whole = run(method, task, **given)
    assert all(math.isfinite(report.loss) for report in whole.reports)
    first = simulate(method, 1, task=TASKS[task], **given)
    rest = run(method, task, resume_from=saved_and_loaded(first), **given)
    assert sha256(rest.state.params) == sha256(whole.state.params)
    if name != "local-training":
        assert sha256(whole.state.params) != sha256(whole.start.params)
    assert all(torch.isfinite(t).all() for t in whole.personal(0).values())


def next_tokens() -> Chain:
    """A model of tokens: (n, T) to (n, T, V)."""
    blocks = {
        "embedding": nn.Embedding(7, WIDTH),
        "body": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()),
        "head": nn.Linear(WIDTH, 7),
    }
    return Chain(blocks).double()


@pytest.mark.parametrize(
    "name", ["fedavg", "fedprox", "scaffold", "feddyn", "moon", "ditto", "fedrep", *DISTILLATION]
)
def test_it_trains_on_tokens(name: str) -> None:
    draws = torch.Generator().manual_seed(3)
    clients = []
    for size in (9, 6, 12, 5):
        tokens = torch.randint(7, (size, 5), generator=draws)
        y = tokens[:, 1:].clone()
        y[:, -1:] = -100
        clients.append(TensorClient(tokens[:, :-1], y))
    result = run(build(parse(name)), "next-token", build=next_tokens, clients=clients)
    assert result.reports[-1].loss < result.reports[0].loss


@pytest.mark.parametrize(
    "method", [*DISTILLATION, "fedntd(form=first, beta=0.4)", "fedmlb(graft=global-to-local)"]
)
def test_distillation_on_texts_is_that_on_their_tokens(method: str) -> None:
    """The model looks at single positions, so each token that counts is a sample of its own."""
    draws, texts, single = torch.Generator().manual_seed(4), [], []
    for _ in range(4):
        tokens = torch.randint(7, (6, 5), generator=draws)
        y = torch.randint(7, (6, 5), generator=draws)
        y[torch.arange(6), torch.randint(5, (6,), generator=draws)] = -100
        counted = y != -100
        texts.append(TensorClient(tokens, y))
        single.append(TensorClient(tokens[counted], y[counted]))
    given = {"build": next_tokens, "solver": Sgd(lr=0.5, batch=100, epochs=3)}
    by_text = run(build(parse(method)), "next-token", clients=texts, **given)
    by_token = run(build(parse(method)), "classification", clients=single, **given)
    plain = run(fedavg(), "next-token", clients=texts, **given)
    for name, expected in by_token.state.params.items():
        assert torch.allclose(by_text.state.params[name], expected, rtol=0, atol=1e-12)
    assert sha256(by_text.state.params) != sha256(plain.state.params)


def test_the_methods_with_classes_are_rejected_with_those_that_fit() -> None:
    for name in WITH_CLASSES:
        with pytest.raises(UserError) as caught:
            check_task(parse(f"fedprox+{name}"), "regression")
        tasks = "classification and next-token" if name in DISTILLATION else "classification"
        assert str(caught.value).startswith(
            f"method '{name}' is for {tasks}, and the task is regression; "
            "methods for regression: ditto, fedadam, "
        )
    assert sorted([*methods_for("regression"), *WITH_CLASSES]) == names()
    assert sorted([*methods_for("next-token"), *CLASSIFICATION_ONLY]) == names()
    assert methods_for("classification") == names()
    assert entry("kd").tasks == ["classification", "next-token"]
    assert entry("crt").tasks == ["classification"] and entry("moon").tasks == list(TASKS)


def test_a_combination_supports_what_all_of_its_parts_do() -> None:
    assert build(parse("fedprox+fedavgm")).tasks is None
    assert build(parse("fedprox+kd")).tasks == {"classification", "next-token"}
    assert build(parse("mixup+kd")).tasks == {"classification"}
    numbers = Method("numbers", tasks=frozenset({"regression"}))
    assert (numbers + fedprox()).tasks == {"regression"}
    with pytest.raises(UserError, match="no task is supported by all of the methods"):
        numbers + build(parse("kd"))


@pytest.mark.parametrize("name", ["crt", "ros", "m2m", "fedafa", "finetune"])
def test_a_finale_leaves_the_rounds_unchanged_whatever_tasks_it_is_for(name: str) -> None:
    assert leaves_rounds_unchanged(parse(name)[0])


def test_a_loss_of_the_user_replaces_that_of_the_task() -> None:
    def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean()

    task = replace(TASKS["regression"], loss=absolute_error, sample_losses=None)
    clients = clients_for("regression")
    ours = simulate(fedavg(), 1, task=task, clients=clients, build=bare)
    world = World(
        bare,
        clients,
        ours.simulation.federation.key,
        uniform(3),
        loss=lambda model, x, y: (model(x) - y).abs().sum() / y.numel(),
    )
    expected = oracles.fedavg(world, dict(initial_model(bare).state_dict()), 1)
    for name, value in expected.items():
        assert torch.allclose(ours.state.params[name], value, atol=1e-10)


def zero(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0 * outputs.sum()


FIXED = {"fedmix", "fedafa", "m2m"}
AT = ("mixup(at=body)", "naivemix(at=body, every_round=true)", "globalmixup(at=body)")


@pytest.mark.parametrize("name", [*(n for n in names() if n != "gradaug"), *AT])
def test_a_loss_of_the_user_is_used_or_refused(name: str) -> None:
    """gradaug needs images."""
    config, method = load({"method": name, "loss": "own.py:zero"}), build(parse(name))
    refused = list(loss_conflicts(config, method))
    assert bool(refused) is (name in FIXED or name in AT)
    assert all("would not use loss=own.py:zero; leave out" in text for text in refused)
    assert not list(loss_conflicts(load({"method": name}), method))
    if not refused:
        task = TASKS["classification"]
        tasks = (task, replace(task, loss=zero, sample_losses=None))
        plain, own = (simulate(method, 1, task=t, build=needed_model(name)) for t in tasks)
        assert any(sha256(plain.personal(c)) != sha256(own.personal(c)) for c in range(3))
