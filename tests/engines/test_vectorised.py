"""The vectorised engine against the exact one: the same numbers for ragged clients, every rule of descent and every lane width,
and for all that it cannot play, the exact engine's own bits and a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.job import Data, Job
from fedloom.core.key import Key
from fedloom.core.method import Extra, Method, Outcome, Phase
from fedloom.core.params import Params, sha256
from fedloom.core.round import Loom, begin, rounds
from fedloom.core.sampler import everyone
from fedloom.core.select import blocks, norms
from fedloom.core.server import Reply
from fedloom.core.solver import HeavyBall, Schedule, Sgd
from fedloom.core.state import MemoryStore, ServerState
from fedloom.core.step import Step
from fedloom.engines import vectorised
from fedloom.engines.inprocess import ClientError, InProcess
from fedloom.engines.vectorised import Vectorised, footprint
from fedloom.methods.fedavg import fedavg
from fedloom.methods.registry import build, names, parse
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES, FEATURES, Build, bare, nested, noisy
from support.rules import Maml
from support.weave import first_model

SOLVER = Sgd(lr=0.1, batch=4, epochs=2)


class Nobody:
    """A fallback that is not needed."""

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        raise AssertionError(f"clients {[t.client for t in tasks]} were not vectorised")

    def close(self) -> None:
        raise AssertionError("closed before its time")


@dataclass
class Counted:
    """The exact engine, which notes what it was asked for."""

    engine: InProcess
    works: list[str]

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        self.works.append(sent.work)
        return self.engine.map(sent, tasks)

    def close(self) -> None:
        self.works.append("close")


def federation_of(
    method: Method, clients: Sequence[Data] | None = None, solver: Any = SOLVER, build: Build = bare, seed: int = 0
) -> Federation:
    return Federation(method, build, clients or tiny_clients(), solver, Key.root(seed), classes=CLASSES)


def played(federation: Federation, engine: Any, until: int = 3) -> tuple[ServerState, MemoryStore, list[Any]]:
    """So many rounds of all clients: the last state, the clients' memories, and the reports."""
    loom, store = Loom(federation, everyone(), engine), MemoryStore()
    done = list(rounds(loom, begin(loom, first_model(federation.build)), store, until))
    return done[-1][0], store, [report for _, report in done]


def gap(a: Params, b: Params) -> float:
    assert a.keys() == b.keys()
    return max(float((t - b[n]).abs().max()) for n, t in a.items())


def assert_alike(federation: Federation, tolerance: float = 1e-10, until: int = 3, **given: Any) -> None:
    """Server, memories and reports of a run, vectorised to the last client, against the exact engine."""
    exact, remembered, told = played(federation, InProcess(federation), until)
    state, store, reports = played(federation, Vectorised(federation, Nobody(), **given), until)
    assert gap(exact.params, state.params) < tolerance
    for client in range(len(federation.clients)):
        ours, theirs = store.recall(client), remembered.recall(client)
        assert ours.keys() == theirs.keys()
        assert all(gap(ours[slot], theirs[slot]) < tolerance for slot in ours)
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in told], abs=1e-10)


PLAIN = ("fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "feddyn", "scaffold")
JOINED = ("fedprox+fedavgm", "scaffold+fedadam", "fedprox+feddyn")


@pytest.mark.parametrize("method", [*names(), *JOINED])
def test_every_method_is_alike_or_left_alone(method: str) -> None:
    federation = federation_of(build(parse(method)))
    if (why_not := Vectorised(federation, Nobody()).why_not) is None:
        assert_alike(federation)
    else:
        assert method not in (*PLAIN, *JOINED), why_not


SOLVERS = {
    "momentum": replace(SOLVER, rule=HeavyBall(momentum=0.9)),
    "nesterov": replace(SOLVER, rule=HeavyBall(momentum=0.9, nesterov=True)),
    "weight decay": replace(SOLVER, rule=HeavyBall(momentum=0.5, weight_decay=0.1)),
    "clip": replace(SOLVER, clip=0.3),
    "clip none": replace(SOLVER, clip=1e6),
    "steps": replace(SOLVER, steps=7),
    "one step": replace(SOLVER, steps=1),
    "drop last": replace(SOLVER, drop_last=True, batch=6),
    "whole": replace(SOLVER, batch=1000),
    "single": replace(SOLVER, batch=1, epochs=1),
    "schedule": replace(SOLVER, schedule=Schedule("exponential", 0.5)),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_every_way_to_descend(solver: Sgd) -> None:
    assert_alike(federation_of(build(parse("fedprox+feddyn")), solver=solver))


def linear() -> Chain:
    return Chain({"head": nn.Linear(FEATURES, CLASSES)}).double()


def test_a_clip_is_of_each_lane() -> None:
    """One client's gradient is a hundred times the other's; the bound lies between, so that only one of them is shortened."""
    calm, wild = tiny_clients((8, 8))
    clients = [calm, replace(wild, x=100 * wild.x)]
    engine = Vectorised(federation_of(fedavg(), clients, Sgd(lr=0.1, batch=8, clip=2.0), linear), Nobody())
    sent = Broadcast("train", 0, first_model(linear).state_dict())
    length = {
        c: float(torch.cat([t.flatten() for t in r.uploads["model"].values()]).norm())
        for c, r in engine.map(sent, [Task(0), Task(1)])
    }
    assert length[1] == pytest.approx(0.1 * 2.0, abs=1e-6)
    assert length[0] < 0.19


@settings(max_examples=12, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=7),
    batch=st.integers(1, 8),
    epochs=st.integers(1, 3),
    width=st.integers(1, 8),
)
def test_any_sizes_in_any_batches_on_any_number_of_lanes(sizes: list[int], batch: int, epochs: int, width: int) -> None:
    solver = Sgd(lr=0.1, batch=batch, epochs=epochs, rule=HeavyBall(momentum=0.9))
    assert_alike(federation_of(build(parse("scaffold")), tiny_clients(tuple(sizes)), solver), until=2, lanes=width)


def test_clients_of_one_sample() -> None:
    assert_alike(federation_of(build(parse("fedprox")), tiny_clients((1, 1, 1))))
    assert_alike(federation_of(build(parse("fedprox")), tiny_clients((1, 30))))


def test_a_client_without_a_batch_stays_where_it_is() -> None:
    federation = federation_of(build(parse("scaffold")), tiny_clients((3, 9, 2)), replace(SOLVER, drop_last=True))
    sent = Broadcast("train", 0, first_model(bare).state_dict())
    exact = dict(InProcess(federation).map(sent, [Task(c) for c in range(3)]))
    for asked in ([0, 1, 2], [0, 2]):
        replies = dict(Vectorised(federation, Nobody()).map(sent, [Task(c) for c in asked]))
        assert sorted(replies) == asked
        for c, reply in replies.items():
            assert (reply.samples, reply.seen, reply.steps) == (exact[c].samples, exact[c].seen, exact[c].steps)
            assert any(t.any() for t in reply.uploads["model"].values()) == (c == 1)
            assert reply.loss == pytest.approx(exact[c].loss)


def test_only_the_chosen_tensors_move() -> None:
    method = Method("head only", (Phase(trains=blocks("head")),))
    assert_alike(federation_of(method))
    engine = Vectorised(federation_of(method), Nobody())
    (_, reply), *_ = engine.map(Broadcast("train", 0, first_model(bare).state_dict()), [Task(0)])
    assert {n for n, t in reply.uploads["model"].items() if t.any()} == {"head.weight", "head.bias"}


class Constant(nn.Module):
    """A layer with a buffer that is never changed, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((5,), 0.5))
        self.register_buffer("version", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def with_buffers() -> Chain:
    return Chain({"stem": nn.Linear(FEATURES, 5), "still": Constant(), "head": nn.Linear(5, CLASSES)}).double()


def test_buffers_that_stay_are_sent_as_no_change() -> None:
    assert_alike(federation_of(fedavg(), build=with_buffers))
    state, _, _ = played(
        federation_of(fedavg(), build=with_buffers), Vectorised(federation_of(fedavg(), build=with_buffers), Nobody())
    )
    assert state.params["still.version"] == 3


# ---- real data: rows of one split, bytes normalised on the way

REAL = {
    "rounds": 3,
    "seed": 3,
    "model": "mlp(layers=1, width=16)",
    "data": {"clients": 200, "partition": "dirichlet(alpha=0.3)"},
    "train": {"batch": 20, "momentum": 0.9, "clip": 5.0},
    "sample": {"per_round": 9},
    "engine": "inprocess",
}


def after(study: Study, engine: Any, count: int) -> Params:
    loom = replace(study.loom, engine=engine)
    *_, (state, _) = rounds(loom, begin(loom, study.model), MemoryStore(), count)
    return state.params


def assert_alike_on_real_data(tolerance: float, **changes: Any) -> None:
    study = assemble(load({**REAL, **changes}))
    federation = study.loom.federation
    engine = Vectorised(federation, Nobody())
    for count in (1, 3):
        assert gap(after(study, study.loom.engine, count), after(study, engine, count)) < tolerance


@pytest.mark.parametrize("method", ["fedavg", "fedprox(mu=0.1)", "scaffold"])
def test_real_data_within_the_stated_tolerance(method: str) -> None:
    assert_alike_on_real_data(1e-5, method=method, train={"batch": 20})
    assert_alike_on_real_data(1e-10, method=method, dtype="float64")


def test_a_convolutional_net() -> None:
    data = {"clients": 600, "partition": "dirichlet(alpha=0.3)"}
    assert_alike_on_real_data(1e-5, model="lenet5", data=data, train={"batch": 10}, sample={"per_round": 4})


def test_augmentation_draws_what_it_would_draw_alone() -> None:
    data = {**REAL["data"], "augment": ["flip", "pad-crop"]}  # type: ignore[dict-item]
    assert_alike_on_real_data(1e-10, data=data, dtype="float64")


def test_one_seed_has_one_result() -> None:
    study = assemble(load(REAL))
    federation = study.loom.federation
    first, second = (sha256(after(study, Vectorised(federation, Nobody()), 2)) for _ in range(2))
    assert first == second


# ---- what it leaves to the other engine


def two_phases() -> Method:
    return Method("two", (Phase(), Phase(slot="own")))


def entropic(step: Step) -> Tensor:
    p = step.logits.softmax(1)
    return (p * p.log()).sum(1).mean()


def drawing(step: Step) -> Tensor:
    noise = torch.randn(1, generator=step.key.generator(), dtype=torch.float64)
    return noise[0] * step.vector.sum()


def grudging(step: Step) -> Tensor:
    return sum(step.job.recall("grudge")[n].sum() for n in step.params) * step.vector.sum()


def restless(step: Step) -> Tensor:
    return torch.dot(step.vector, step.along(lambda job: job.received))


def personal(step: Step) -> Tensor:
    return step.job.client * step.vector.square().sum()


def term(loss: Any) -> Method:
    return Method("own", (Phase(terms=(loss,)),))


REFUSED: dict[str, tuple[Federation, str]] = {
    "phases": (federation_of(two_phases()), "method 'two' has 2 phases"),
    "mix": (federation_of(Method("m", (Phase(mix=lambda x, y, job, key: (x, y)),))), "method 'm' mixes batches"),
    "private": (federation_of(Method("p", private=norms), build=nested), "method 'p' keeps tensors private"),
    "start": (federation_of(Method("s", (Phase(start="own"),))), "method 's' starts from slot 'own'"),
    "rule": (federation_of(fedavg(), solver=Sgd(batch=2, rule=Maml(0.1))), "do not descend by Sgd with HeavyBall"),
    "solver": (
        federation_of(fedavg(), solver=lambda model, goal, job, key: SOLVER(model, goal, job, key)),
        "do not descend by Sgd",
    ),
    "reset": (federation_of(fedavg(), solver=replace(SOLVER, reset=False)), "train.reset=false"),
    "batch norm": (federation_of(fedavg(), build=nested), "the model normalises by the batch"),
    "dropout": (federation_of(fedavg(), build=noisy), "the model has dropout"),
    "rows": (federation_of(term(entropic)), "method 'own' on this model gives other numbers side by side than alone, by"),
    "client": (federation_of(term(personal)), "gives other numbers side by side than alone"),
    "draws": (federation_of(term(drawing)), "cannot be stacked (Apart: a loss looks at one client's key"),
    "memory": (federation_of(term(grudging)), "cannot be stacked (Apart: a loss looks at one client's key, data or memories"),
    "endless": (federation_of(term(restless)), "cannot be stacked (Apart: a loss asks its job for more than"),
}


@pytest.mark.parametrize(("federation", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stacked_is_played_by_the_fallback(federation: Federation, sentence: str) -> None:
    counted = Counted(InProcess(federation), [])
    engine = Vectorised(federation, counted)
    assert engine.why_not is not None
    assert sentence in engine.why_not
    assert "\n" not in engine.why_not
    exact, _, _ = played(federation, InProcess(federation), 1)
    state, _, _ = played(federation, engine, 1)
    assert sha256(state.params) == sha256(exact.params)
    assert counted.works == ["train"]


@pytest.mark.parametrize(("channels", "batch", "pays"), [(16, 10, True), (17, 10, False), (16, 11, False)])
def test_convolutions_are_stacked_where_that_pays(channels: int, batch: int, pays: bool) -> None:
    def model() -> Chain:
        conv = nn.Sequential(nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, channels, FEATURES), nn.Flatten())
        return Chain({"conv": conv, "head": nn.Linear(channels, CLASSES)}).double()

    federation = federation_of(fedavg(), solver=Sgd(lr=0.1, batch=batch), build=model)
    if pays:
        assert_alike(federation)
    else:
        why_not = Vectorised(federation, InProcess(federation)).why_not
        assert why_not == "on a CPU lanes pay for convolutions of 16 channels at most, in batches of 10 at most"


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
    """A layer that looks at its numbers, which a batched call cannot."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else 2 * x


@pytest.mark.parametrize("layer", [Shuffles, Counts, Branches])
def test_a_layer_that_would_go_wrong_is_found_out(layer: type[nn.Module]) -> None:
    def model() -> Chain:
        return Chain({"stem": nn.Linear(FEATURES, 5), "odd": layer(), "head": nn.Linear(5, CLASSES)}).double()

    federation = federation_of(fedavg(), build=model)
    assert Vectorised(federation, InProcess(federation)).why_not is not None


def test_numbers_that_are_none_prove_nothing() -> None:
    clients = [replace(c, x=c.x * torch.nan) for c in tiny_clients()]
    federation = federation_of(fedavg(), clients)
    assert "by nan in float64" in (Vectorised(federation, InProcess(federation)).why_not or "")


def test_a_loss_of_ones_own_on_weights_is_vectorised() -> None:
    """A group norm of every tensor: not a sum over weights, so that lanes that leaked into each other would show."""
    assert_alike(federation_of(term(lambda step: 0.01 * torch.stack([p.norm() for p in step.params.values()]).sum())))


def test_a_loss_knows_the_number_of_its_step() -> None:
    assert_alike(federation_of(term(lambda step: 0.01 * step.number * step.vector.square().sum())))


def test_memories_of_ones_own_go_through_once() -> None:
    def towards(job: Job) -> Params:
        return job.recall("last", lambda weights: {n: t + 1 for n, t in weights.items()})

    def remember(outcome: Outcome) -> Extra:
        return Extra(mine={"last": {n: t for n, t in outcome.weights["model"].items()}})

    def spring(step: Step) -> Tensor:
        return 0.1 * (step.vector - step.along(towards)).square().sum()

    assert_alike(federation_of(Method("own", (Phase(terms=(spring,)),), (remember,))), lanes=3)


def test_other_work_is_the_fallbacks() -> None:
    federation = federation_of(replace(fedavg(), finale=(Phase(),)))
    counted = Counted(InProcess(federation), [])
    engine = Vectorised(federation, counted)
    assert engine.why_not is None
    sent = Broadcast("personalise", 0, first_model(bare).state_dict())
    ours, exact = (dict(e.map(sent, [Task(1)]))[1] for e in (engine, InProcess(federation)))
    assert sha256(ours) == sha256(exact)
    engine.close()
    assert counted.works == ["personalise", "close"]


@dataclass(frozen=True)
class Torn(TensorClient):
    """A client whose last sample lacks half its features."""

    def batch(self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True) -> tuple[Tensor, Tensor]:
        x, y = super().batch(positions)
        return (x[:, :2] if len(self) - 1 in positions else x), y


def test_an_error_names_the_client_as_it_does_alone() -> None:
    clients = tiny_clients((8, 8, 8, 8, 8))
    federation = federation_of(fedavg(), [*clients[:4], Torn(clients[4].x, clients[4].y)])
    said = []
    for engine in (InProcess(federation), Vectorised(federation, InProcess(federation))):
        with pytest.raises(ClientError) as caught:
            played(federation, engine)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith("client 4 failed in round 1")


# ---- memory and manners


def test_replies_are_not_overwritten_by_later_clients() -> None:
    federation = federation_of(build(parse("scaffold")))
    engine = Vectorised(federation, Nobody(), lanes=4)
    sent = Broadcast("train", 0, first_model(bare).state_dict())
    replies: list[Reply] = [reply for _, reply in engine.map(sent, [Task(c) for c in range(4)])]
    before = [sha256(p) for r in replies for p in (*r.uploads.values(), *r.mine.values())]
    list(engine.map(sent, [Task(c) for c in range(4, 8)]))
    assert [sha256(p) for r in replies for p in (*r.uploads.values(), *r.mine.values())] == before


def test_clients_are_fetched_a_chunk_at_a_time() -> None:
    """Their memories lie in a store that may be larger than this machine's memory."""
    federation, fetched = federation_of(fedavg()), list[int]()

    def tasks() -> Iterator[Task]:
        for c in range(8):
            fetched.append(c)
            yield Task(c)

    replies = Vectorised(federation, Nobody(), lanes=3).map(Broadcast("train", 0, first_model(bare).state_dict()), tasks())
    next(replies)
    assert fetched == [0, 1, 2]


def test_lanes_are_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer keeps its input: 4 sets of 21 weights and 4 rows of 6 features a lane, 8 bytes each; softmax is the loss's."""
    federation = federation_of(fedavg(), build=linear)
    lanes = Vectorised(federation, Nobody()).lanes
    assert lanes is not None
    assert footprint(lanes, linear()) == 8 * (4 * 21 + 4 * 6)
    monkeypatch.setattr(vectorised, "MEMORY", 3 * 864 + 1)
    assert Vectorised(federation, Nobody()).width == 3
    assert Vectorised(federation, Nobody(), lanes=2).width == 2
    assert_alike(federation)
    monkeypatch.setattr(vectorised, "MEMORY", 1)
    assert Vectorised(federation, Nobody()).width == 1
    assert_alike(federation)


def test_torch_is_set_up_for_a_call_and_found_as_it_was() -> None:
    seen: list[tuple[int, bool]] = []

    class Watches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((torch.get_num_threads(), torch.backends.mkldnn.enabled))
            return x

    torch.set_num_threads(2)
    before = torch.get_rng_state()
    federation = federation_of(fedavg(), build=lambda: Chain({"watch": Watches(), **linear()._modules}).double())
    engine = Vectorised(federation, Nobody())
    seen.clear()
    played(federation, engine, 1)
    assert set(seen) == {(1, False)}
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (2, True)
    assert torch.equal(torch.get_rng_state(), before)
