"""Invalid replies are named and left out; the round is as if the client had not been asked."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedloom.core.client import Broadcast, Task
from fedloom.core.errors import RunError
from fedloom.core.guard import Guard
from fedloom.core.params import sha256
from fedloom.core.round import Engine, init_state, rounds
from fedloom.core.round_report import RoundReport
from fedloom.core.server import Reply
from fedloom.core.state import MemoryStore, ServerState
from fedloom.methods.scaffold import scaffold
from support.golden_problems import fixed_cohorts
from support.simulate import initial_model, make_simulation

Change = Callable[[Reply], Reply]


class Tampered:
    """An engine in which some clients send manipulated replies."""

    def __init__(self, engine: Engine, changes: Mapping[int, Change]) -> None:
        self.engine, self.changes = engine, changes

    def map(self, sent: Broadcast, tasks: Iterable[Task]) -> Iterator[tuple[int, Any]]:
        for client, reply in self.engine.map(sent, tasks):
            yield client, self.changes.get(client, lambda r: r)(reply)


def upload(change: Callable[[dict[str, Tensor]], dict[str, Tensor]], name: str = "model") -> Change:
    return lambda reply: replace(
        reply, uploads={**reply.uploads, name: change(dict(reply.uploads[name]))}
    )


def put(name: str, value: Any) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda params: {**params, name: value}


def poisoned(name: str, value: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    def change(params: dict[str, Tensor]) -> dict[str, Tensor]:
        tensor = params[name].clone()
        tensor.view(-1)[1] = value
        return {**params, name: tensor}

    return change


def opposed(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Infinities that cancel in a sum must not pass."""
    return poisoned("head.weight", float("inf"))(
        {**params, "head.bias": torch.tensor([-torch.inf, 0, 0], dtype=torch.float64)}
    )


VAR = "body.0.downsample.1.running_var"
RANGE = "must be above 0 and at most 1e+08"
MALICIOUS: dict[str, tuple[Change, str]] = {
    "NaN": (
        upload(poisoned("head.weight", float("nan"))),
        "upload 'model': tensor 'head.weight' is not finite",
    ),
    "infinity": (
        upload(poisoned("stem.0.bias", float("inf"))),
        "upload 'model': tensor 'stem.0.bias' is not finite",
    ),
    "minus infinity": (
        upload(poisoned("stem.0.bias", -float("inf"))),
        "upload 'model': tensor 'stem.0.bias' is not finite",
    ),
    "two infinities": (upload(opposed), "is not finite"),
    "NaN in a statistic": (
        upload(poisoned(VAR, float("nan"))),
        f"upload 'model': tensor '{VAR}' is not finite",
    ),
    "NaN in another upload": (
        upload(poisoned("head.bias", float("nan")), "control"),
        "upload 'control': tensor 'head.bias' is not",
    ),
    "wrong shape": (
        upload(put("head.bias", torch.zeros(1, dtype=torch.float64))),
        "upload 'model': tensor 'head.bias' is torch.float64 (1,), expected torch.float64 (3,)",
    ),
    "wrong type": (
        upload(put("head.bias", torch.zeros(3))),
        "is torch.float32 (3,), expected torch.float64 (3,)",
    ),
    "missing name": (
        upload(lambda p: {n: t for n, t in p.items() if n != "head.bias"}),
        "upload 'model': tensor names differ from the model's at ['head.bias']",
    ),
    "extra name": (
        upload(put("extra", torch.zeros(1))),
        "upload 'model': tensor names differ from the model's at ['extra']",
    ),
    "missing upload": (
        lambda r: replace(r, uploads={"model": r.uploads["model"]}),
        "uploads are ['model'], expected ['control', 'model']",
    ),
    "extra upload": (
        lambda r: replace(r, uploads={**r.uploads, "gift": {}}),
        "uploads are ['control', 'gift', 'model'], expected ['control', 'model']",
    ),
    "no samples": (lambda r: replace(r, samples=0), f"samples=0 {RANGE}"),
    "negative samples": (lambda r: replace(r, samples=-5), f"samples=-5 {RANGE}"),
    "absurd samples": (
        lambda r: replace(r, samples=10**15),
        f"samples=1000000000000000 {RANGE}",
    ),
    "NaN samples": (lambda r: replace(r, samples=float("nan")), f"samples=nan {RANGE}"),  # type: ignore[arg-type]
    "nothing seen": (lambda r: replace(r, seen=0), f"seen=0 {RANGE}"),
    "NaN memory": (
        lambda r: replace(
            r,
            memories={"control": poisoned("head.bias", float("nan"))(dict(r.memories["control"]))},
        ),
        "memory 'control': tensor 'head.bias' is not finite",
    ),
}


def one_round(
    cohort: list[int], changes: Mapping[int, Change], guard: Guard | None = None
) -> tuple[Any, RoundReport, MemoryStore]:
    simulation = make_simulation(scaffold(), sampler=fixed_cohorts([cohort]))
    store = MemoryStore()
    simulation = replace(
        simulation, engine=Tampered(simulation.engine, changes), guard=guard or Guard()
    )
    ((state, report),) = rounds(
        simulation, init_state(simulation, initial_model(simulation.federation.build)), store, 1
    )
    return state, report, store


@pytest.mark.parametrize(("change", "sentence"), MALICIOUS.values(), ids=MALICIOUS)
def test_an_invalid_reply_is_named_and_left_out(change: Change, sentence: str) -> None:
    without, _, _ = one_round([0, 2], {})
    state, report, store = one_round([0, 1, 2], {1: change})
    assert list(report.rejected) == [1]
    assert sentence in report.rejected[1]
    assert sha256(state.tensors()) == sha256(without.tensors())
    assert store.recall(1) == {}
    assert store.recall(0).keys() == store.recall(2).keys() == {"control"}


def test_valid_replies_are_accepted() -> None:
    _, report, _ = one_round([0, 1, 2], {})
    assert report.rejected == {}


def test_large_finite_values_are_accepted() -> None:
    """The sum of a tensor may overflow although every value is finite."""
    huge = upload(lambda p: {**p, "head.bias": torch.full((3,), 1e308, dtype=torch.float64)})
    _, report, _ = one_round([0, 1, 2], {1: huge})
    assert report.rejected == {}


def test_too_few_valid_replies_stop_the_run_and_change_nothing() -> None:
    nan = MALICIOUS["NaN"][0]
    simulation = make_simulation(scaffold(), sampler=fixed_cohorts([[0, 1, 2]]))
    simulation = replace(
        simulation, engine=Tampered(simulation.engine, {0: nan, 1: nan}), guard=Guard(min_replies=2)
    )
    state, store = init_state(simulation, initial_model(simulation.federation.build)), MemoryStore()
    before = sha256(state.tensors())
    with pytest.raises(RunError) as error:
        list(rounds(simulation, state, store, 1))
    sentence = str(error.value)
    assert sentence.startswith(
        "only 1 of 3 replies in this round are valid, but guard.min_replies=2 (client 0: "
    )
    assert "client 0: upload 'model'" in sentence
    assert "client 1: upload 'model': tensor 'head.weight' is not finite" in sentence
    assert sha256(state.tensors()) == before
    assert all(store.recall(c) == {} for c in range(3))
    assert isinstance(state, ServerState) and state.round == 0


def test_training_that_diverged_is_named() -> None:
    """Every update contains NaN or Inf: the message says so and how to fix it."""
    with pytest.raises(RunError) as error:
        one_round([1], {1: MALICIOUS["NaN"][0]})
    assert str(error.value) == (
        "training diverged: every update contains NaN or Inf (client 1: upload 'model': tensor "
        "'head.weight' is not finite); lower train.lr or set train.clip"
    )


def test_no_valid_reply_for_another_reason() -> None:
    with pytest.raises(RunError, match="only 0 of 1 replies in this round are valid"):
        one_round([1], {1: MALICIOUS["wrong type"][0]})


def test_replies_are_put_in_client_order() -> None:
    like: dict[str, dict[str, Tensor]] = {"model": {}}
    replies = [Reply(c, 1, 1, {"model": {}}) for c in (5, 2, 9)]
    valid, rejected = Guard().validate(replies, like, asked=[2, 5, 9])
    assert [r.client for r in valid] == [2, 5, 9]
    assert rejected == {}


def test_a_client_counts_once() -> None:
    like: dict[str, dict[str, Tensor]] = {"model": {}}
    twice = [
        Reply(2, 1, 1, {"model": {}}),
        Reply(2, 9, 9, {"model": {}}),
        Reply(3, 1, 1, {"model": {}}),
    ]
    valid, rejected = Guard().validate(twice, like, asked=[2, 3])
    assert [(r.client, r.samples) for r in valid] == [(2, 1), (3, 1)]
    assert rejected == {2: "was not asked, or has answered already"}


def test_a_client_cannot_answer_for_another() -> None:
    """Client 1 claims to be client 6: its reply is rejected; client 6 keeps its memory."""
    without, _, _ = one_round([0, 2], {})
    state, report, store = one_round([0, 1, 2], {1: lambda r: replace(r, client=6)})
    assert report.rejected == {6: "was not asked, or has answered already"}
    assert sha256(state.tensors()) == sha256(without.tensors())
    assert store.recall(6) == {}
