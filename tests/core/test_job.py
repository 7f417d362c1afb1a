"""A client's models and what it knows: trainable tensors, memories, teachers."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.job import Job, ModelPool
from fedloom.core.method import Method, Phase
from fedloom.core.params import Params, sha256
from fedloom.core.select import blocks, everything, norms
from fedloom.core.solver import Sgd
from support.models import NORMS, nested
from support.simulate import initial_model, simulate, standalone_job

HEAD = {"head.weight", "head.bias"}


def start() -> Params:
    return dict(initial_model(nested).state_dict())


def job(**given: object) -> Job:
    return standalone_job(nested, start(), **given)


def test_frozen_tensors_stay_and_frozen_norms_use_running_statistics() -> None:
    """A frozen body stays the received one, including statistics and counters."""
    result = simulate(
        Method("head", (Phase(trains=blocks("head")),)), 1, solver=Sgd(lr=0.3, batch=100)
    )
    for reply in result.replies:
        data = result.simulation.federation.clients[reply.client]
        model = initial_model(nested).eval()
        nn.functional.cross_entropy(model(data.x), data.y).backward()
        for name, change in reply.uploads["model"].items():
            expected = (
                -0.3 * model.get_parameter(name).grad if name in HEAD else torch.zeros_like(change)
            )
            torch.testing.assert_close(change, expected, rtol=0, atol=1e-14)


def test_norms_alone() -> None:
    result = simulate(Method("norms", (Phase(trains=norms),)), 1)
    moved = {n for n, change in result.replies[0].uploads["model"].items() if bool(change.any())}
    assert moved == NORMS


def test_trainable_tensors_are_those_of_the_last_phase() -> None:
    """So are the layers' modes, whatever was trainable before."""
    model_pool = ModelPool(nested)
    model = model_pool.load("model", start())
    for selector in (everything, blocks("head"), everything):
        model_pool.set_trainable(selector)
    assert all(p.requires_grad for p in model.parameters())
    assert all(m.training for m in model.modules())
    model_pool.set_trainable(blocks("head"))
    assert {n for n, p in model.named_parameters() if p.requires_grad} == HEAD
    assert not any(m.training for m in model.modules() if isinstance(m, nn.BatchNorm1d))


def test_taken_tensors_are_not_overwritten() -> None:
    model_pool, weights = ModelPool(nested), start()
    model = model_pool.load("model", weights)
    read = model_pool.take("model")
    with torch.no_grad():
        model.get_parameter("head.bias").fill_(7)
    assert sha256(read) == sha256(weights) == sha256(start())
    assert model_pool.load("model", weights) is model
    assert sha256(model.state_dict()) == sha256(weights)
    assert model_pool.load("another", weights) is not model


def test_a_teacher_is_loaded_once_for_clients_with_the_same_weights() -> None:
    """And again if one tensor differs: in the next round, or a client's private one."""
    loads: list[str] = []

    class Counting(ModelPool):
        def load(self, label: str, weights: Mapping[str, Tensor]) -> Chain:
            loads.append(label)
            return super().load(label, weights)

    model_pool, weights = Counting(nested), start()
    private = {**weights, "head.bias": weights["head.bias"] + 1}
    for received, so_far in (
        (weights, 1),
        (dict(weights), 1),
        (private, 2),
        (weights, 3),
        (start(), 4),
    ):
        teacher = replace(job(), model_pool=model_pool, received=received).frozen()
        assert len(loads) == so_far and sha256(teacher.state_dict()) == sha256(received)
    model_pool.load_frozen("another", weights)
    assert loads[-1] == "another"


def test_what_a_client_remembers() -> None:
    memories = {"h": {"head.bias": torch.ones(3)}}
    assert job(memories=memories).memory("h").keys() == {"head.bias"}
    fresh = job().memory("h")
    assert fresh.keys() == {n for n, _ in nested().named_parameters()}
    assert not any(t.any() for t in fresh.values())
    assert job().memory("h", default=dict)["head.bias"].equal(start()["head.bias"])


def test_what_a_server_sends() -> None:
    """Weights that it does not send, for example private ones, get the default."""
    told = job(shared={"c": {"head.bias": torch.ones(3)}}).from_server("c")
    assert (
        told.keys() == job().from_server("c").keys() == {n for n, _ in nested().named_parameters()}
    )
    assert told["head.bias"].tolist() == [1, 1, 1]
    assert not told["head.weight"].any()


@pytest.mark.parametrize("where", ["memories", "shared"])
def test_a_teacher_from_a_memory(where: str) -> None:
    """Tensors missing from the memory are taken from the received weights."""
    teacher = job(**{where: {"old": {"head.bias": torch.full((3,), 9.0)}}}).frozen("old")
    held = teacher.state_dict()
    assert held["head.bias"].tolist() == [9, 9, 9]
    assert sha256({**held, "head.bias": start()["head.bias"]}) == sha256(start())


def test_a_teacher_has_the_modes_of_its_model() -> None:
    """A batch norm that the model keeps in evaluation mode, as a pretrained one, is so there."""

    class Pretrained(nn.Sequential):
        def train(self, mode: bool = True) -> "Pretrained":
            return super().train(False)

    def build() -> Chain:
        return Chain({"body": Pretrained(nn.BatchNorm1d(2)), "head": nn.BatchNorm1d(2)})

    start = dict(build().state_dict())
    teacher = standalone_job(build, start).frozen(norm="batch")
    modes = {n for n, m in teacher.named_modules() if m.training}
    assert modes == {"head"}
    assert not any(
        m.training for m in standalone_job(build, start).frozen(norm="running").modules()
    )


def test_a_teacher_that_is_first_built_in_mixed_precision() -> None:
    """Its layers and what it computes from them are those of the trained model."""

    class Computes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.ones(2, 2) @ torch.ones(2, 2), persistent=False)
            self.scale = nn.Parameter(torch.ones(2))

    def build() -> Chain:
        return Chain({"body": Computes()})

    start = dict(build().state_dict())
    of = standalone_job(build, start)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        teacher = of.frozen()
    assert teacher.get_buffer("body.table").dtype == torch.float32
