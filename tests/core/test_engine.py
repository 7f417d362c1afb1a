"""The in-process engine: error positions, restored random state and threads, no carry-over."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.client_error import ClientError
from fedloom.core.errors import RunError
from fedloom.core.job import Job
from fedloom.core.method import Method, Phase
from fedloom.core.optimisers import SGDRule
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, ClientTask, Task
from fedloom.core.round import rounds
from fedloom.core.sampler import everyone
from fedloom.core.select import blocks, norms
from fedloom.core.simulation import Engine, init_state
from fedloom.core.solver import Sgd
from fedloom.core.state import MemoryStore
from fedloom.core.step import Step
from fedloom.engines.inprocess import InProcess
from fedloom.methods.fedavg import fedavg
from fedloom.methods.fedprox import fedprox
from fedloom.methods.scaffold import scaffold
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES, Build, bare, nested, noisy
from support.simulate import SOLVER, initial_model, make_simulation, simulate


@dataclass(frozen=True)
class Breaks(TensorClient):
    """A client whose data fail after some batches."""

    after: int = 0
    asked: list[int] | None = None

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        x, y = super().batch(positions)
        assert self.asked is not None
        self.asked.append(len(positions))
        return (x[:, :2], y) if len(self.asked) > self.after else (x, y)


def breaking(after: int) -> list[TensorClient]:
    clients = tiny_clients((8, 8, 8))
    return [*clients[:2], Breaks(clients[2].x, clients[2].y, after=after, asked=[])]


def test_an_error_says_where_it_happened() -> None:
    """With two steps per phase, the eighth batch is step 2 of phase 1 in round 2, from 1."""
    method = Method("two", (Phase(), Phase(slot="own")))
    with pytest.raises(ClientError) as error:
        simulate(
            method,
            3,
            build=bare,
            clients=breaking(after=7),
            sampler=everyone(),
            solver=Sgd(batch=4),
        )
    sentence = str(error.value)
    assert sentence.startswith(
        "client 2 failed in round 2, phase 1, step 2, batch shapes (4, 2), (4,): "
    )
    assert "mat1 and mat2 shapes cannot be multiplied" in sentence
    facts = {**error.value.facts, "cause": ""}
    assert facts == {
        "client": 2,
        "round": 1,
        "phase": 1,
        "step": 2,
        "shapes": [[4, 2], [4]],
        "cause": "",
        "work": "train",
    }
    assert isinstance(error.value, RunError)
    assert isinstance(error.value.__cause__, RuntimeError)


def test_an_error_before_the_first_batch() -> None:
    class NoOrder:
        def __call__(self, data: Any, generator: torch.Generator) -> Tensor:
            raise OSError("disk gone")

    with pytest.raises(
        ClientError, match=r"phase 0, step 0, batch shapes no batch yet: OSError: disk gone"
    ):
        simulate(Method("x", (Phase(order=NoOrder()),)), 1)


METHODS = {"fedavg": fedavg(), "scaffold": scaffold(), "private": replace(fedprox(), private=norms)}


@pytest.mark.parametrize("build", [nested, noisy], ids=["nested", "noisy"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_callers_random_state_and_threads_are_restored(method: Method, build: Build) -> None:
    """Although building the model draws initial weights from the global generator."""
    torch.set_num_threads(2)
    model = initial_model(build)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    simulation = make_simulation(method, build=build)
    list(rounds(simulation, init_state(simulation, model), MemoryStore(), 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_clients_compute_on_one_thread() -> None:
    """Two threads would add in a different order."""
    threads = []

    def noting(step: Step) -> Tensor:
        threads.append(torch.get_num_threads())
        return step.ce

    torch.set_num_threads(2)
    simulate(Method("noting", (Phase(noting),)), 1)
    assert set(threads) == {1}


def test_random_state_and_threads_after_an_error() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    with pytest.raises(ClientError):
        simulate(fedavg(), 3, build=bare, clients=breaking(after=1), sampler=everyone())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 2


def test_the_result_is_independent_of_the_callers_random_state() -> None:
    hashes = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        hashes.add(sha256(simulate(fedavg(), build=noisy).state.params))
    assert len(hashes) == 1


def teacher(job: Job) -> Chain:
    return job.frozen()


def taught(step: Step) -> Tensor:
    return step.ce + nn.functional.mse_loss(step.logits, step.job.once(teacher)(step.x))


WORKERS = {
    "fedavg": fedavg(),
    "scaffold": scaffold(),
    "taught": Method("taught", (Phase(taught),)),
    "three phases": Method("three", (Phase(trains=blocks("head")), Phase(), Phase(slot="own"))),
}


@pytest.mark.parametrize("build", [nested, noisy], ids=["nested", "noisy"])
@pytest.mark.parametrize("method", WORKERS.values(), ids=WORKERS)
def test_a_new_worker_and_a_used_one_give_the_same_answer(method: Method, build: Build) -> None:
    """A pool gives a client to any worker, so earlier work of the worker must not matter."""
    simulation = make_simulation(method, build=build)
    sent = Broadcast("train", 0, init_state(simulation, initial_model(build)).params)
    busy = dict(InProcess(simulation.federation).map(sent, [ClientTask(c) for c in (0, 3, 1)]))[1]
    fresh = dict(InProcess(simulation.federation).map(sent, [ClientTask(1)]))[1]
    assert sha256(busy.uploads["model"]) == sha256(fresh.uploads["model"])
    assert {s: sha256(m) for s, m in busy.memories.items()} == {
        s: sha256(m) for s, m in fresh.memories.items()
    }


class Backwards:
    """An engine whose clients answer in reverse order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        yield from reversed(list(self.engine.map(sent, reversed(list(tasks)))))


@pytest.mark.parametrize("method", [scaffold(), fedprox()], ids=["scaffold", "fedprox"])
def test_the_order_of_the_answers_does_not_matter(method: Method) -> None:
    simulation = make_simulation(method)
    simulation = replace(simulation, engine=Backwards(simulation.engine))
    *_, (state, _) = rounds(
        simulation, init_state(simulation, initial_model(nested)), MemoryStore(), 3
    )
    assert sha256(state.tensors()) == sha256(simulate(method).state.tensors())


@pytest.mark.parametrize(
    "method",
    [
        Method("tuned", finale=(Phase(),)),
        Method("own", (Phase(), Phase(slot="own")), evaluates="own"),
    ],
)
def test_the_scored_model_is_the_personalised_one(method: Method) -> None:
    test = tiny_clients((40,))[0]
    simulation = make_simulation(method)
    federation = replace(
        simulation.federation,
        test=[(test.x[:25], test.y[:25]), (test.x[25:], test.y[25:])],
        classes=CLASSES,
    )
    result = replace(simulate(method), simulation=replace(simulation, engine=InProcess(federation)))
    sent = Broadcast("score", 3, result.state.params)
    for client, scored in result.simulation.engine.map(
        sent, [ClientTask(c, result.store.recall(c)) for c in range(3)]
    ):
        model = nested().eval().requires_grad_(False)
        model.load_state_dict(result.personal(client))
        right = model(test.x).argmax(1) == test.y
        assert scored.counts.hits.tolist() == [
            int(right[test.y == c].sum()) for c in range(CLASSES)
        ]
        assert scored.counts.seen.tolist() == [int((test.y == c).sum()) for c in range(CLASSES)]
        assert scored.counts.loss == pytest.approx(
            float(nn.functional.cross_entropy(model(test.x), test.y))
        )


KEEPING = Sgd(batch=4, reset=False, rule=SGDRule(momentum=0.9))


@pytest.mark.parametrize("solver", [SOLVER, KEEPING], ids=["plain", "kept momentum"])
def test_what_was_sent_is_not_modified(solver: Sgd) -> None:
    """An interrupted round must leave the state and the clients' memories unchanged."""
    result = simulate(scaffold(), 2, solver=solver, sampler=everyone())
    tasks = [ClientTask(c, result.store.recall(c)) for c in range(8)]
    before = (
        sha256(result.state.tensors()),
        [{s: sha256(m) for s, m in t.memories.items()} for t in tasks],
    )
    list(
        result.simulation.engine.map(
            Broadcast("train", 2, result.state.params, result.state.shared), tasks
        )
    )
    assert (
        sha256(result.state.tensors()),
        [{s: sha256(m) for s, m in t.memories.items()} for t in tasks],
    ) == before


def test_a_report_counts_what_happened() -> None:
    result = simulate(scaffold(), 2, build=bare, solver=Sgd(batch=4))
    weights = sum(t.numel() * 8 for t in bare().state_dict().values())
    for report, sent_along in zip(result.reports, (0, weights), strict=True):
        sizes = [len(result.simulation.federation.clients[c]) for c in report.clients]
        assert report.steps == sum(-(-n // 4) for n in sizes)
        assert report.bytes_up == 3 * 2 * weights
        assert report.bytes_down == 3 * (weights + sent_along)
    first = result.replies[:3]
    assert result.reports[0].clients == tuple(r.client for r in first)
    assert result.reports[0].loss == pytest.approx(
        sum(r.loss * r.samples for r in first) / sum(r.samples for r in first)
    )
