"""Invalid replies are named and left out; the round is as if the client had not been asked."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.guard import Guard
from fedloom.core.method import Method
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, Task
from fedloom.core.round import rounds
from fedloom.core.round_report import RoundReport, TooManySkipped
from fedloom.core.server import Absent, Cohort, Reply, Stage, apply_mean, mean, no_memory
from fedloom.core.simulation import Engine, init_state
from fedloom.core.state import MemoryStore, ServerState
from fedloom.core.valid_replies import ValidReplies
from fedloom.methods.scaffold import scaffold
from support.golden_problems import fixed_cohorts
from support.simulate import initial_model, make_simulation

Change = Callable[[Reply], Any]
NO_TENSORS = ValidReplies({"model": {}}, {}, sizes=[9] * 10, weights=(), max_norm=1.0)


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


def odd(reply: Reply, **values: Any) -> Reply:
    """A reply with values of any type."""
    return replace(reply, **values)


def opposed(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Infinities that cancel in a sum must not pass."""
    return poisoned("head.weight", float("inf"))(
        {**params, "head.bias": torch.tensor([-torch.inf, 0, 0], dtype=torch.float64)}
    )


VAR = "body.0.downsample.1.running_var"
RANGE = "must be from 1 to 9, the samples it holds"
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
    "one sample too many": (lambda r: replace(r, samples=r.samples + 1), f"samples=10 {RANGE}"),
    "more digits than Python prints": (
        lambda r: replace(r, samples=10**5000),
        f"samples=an integer of about 5,001 digits {RANGE}",
    ),
    "NaN samples": (lambda r: odd(r, samples=float("nan")), f"samples=nan {RANGE}"),
    "no count of samples": (lambda r: odd(r, samples=None), f"samples=None {RANGE}"),
    "samples as text": (lambda r: odd(r, samples="7"), f"samples='7' {RANGE}"),
    "true samples": (lambda r: odd(r, samples=True), f"samples=True {RANGE}"),
    "nothing seen": (lambda r: replace(r, seen=0), f"seen=0 {RANGE}"),
    "no loss": (lambda r: odd(r, loss=None), "loss=None is not a floating-point number"),
    "a loss too large for a float": (
        lambda r: odd(r, loss=10**400),
        "loss=an integer of about 401 digits is not a floating-point number",
    ),
    "steps as text": (lambda r: odd(r, steps="x"), "steps='x' must be from 0 to 1000000000"),
    "negative steps": (lambda r: replace(r, steps=-1), "steps=-1 must be from 0 to"),
    "a name as number": (lambda r: odd(r, client="a"), "it claims to be client 'a'"),
    "no reply": (lambda r: None, "it sent a NoneType, not a reply"),
    "uploads as a list": (lambda r: odd(r, uploads=[1]), "uploads are [1], expected ['control', "),
    "an upload as a list": (
        lambda r: odd(r, uploads={**r.uploads, "model": [1]}),
        "upload 'model': it is a list, not a mapping of tensors",
    ),
    "a list as tensor": (
        upload(put("head.bias", [0.0, 0.0, 0.0])),
        "upload 'model': 'head.bias' is a list, not a tensor",
    ),
    "a sparse tensor": (
        upload(put("head.bias", torch.zeros(3, dtype=torch.float64).to_sparse())),
        "upload 'model': tensor 'head.bias' is not a dense tensor",
    ),
    "memories as a list": (lambda r: odd(r, memories=[]), "memories are [], not a mapping"),
    "a memory of text": (
        lambda r: odd(r, memories={"control": {"head.bias": "x"}}),
        "memory 'control': 'head.bias' is a str, not a tensor",
    ),
    "huge but finite": (
        upload(poisoned("head.weight", 1e30)),
        "upload 'model': its norm is 1e+30, and at most",
    ),
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


def test_a_norm_above_the_bound_is_rejected() -> None:
    """Its squares overflow although every value is finite; the message tells the two apart."""
    huge = upload(lambda p: {**p, "head.bias": torch.full((3,), 1e308, dtype=torch.float64)})
    _, report, _ = one_round([0, 1, 2], {1: huge})
    assert report.rejected[1].startswith("upload 'model': its norm is inf, and at most ")
    assert report.rejected[1].endswith(" is accepted (guard.max_norm)")


def test_statistics_have_a_bound_of_their_own() -> None:
    """A variance may be as large as the square of an activation."""
    large, larger = (
        upload(lambda p, value=value: {**p, VAR: torch.full_like(p[VAR], value)})
        for value in (1e8, 1e20)
    )
    _, report, _ = one_round([0, 1, 2], {1: large, 2: larger})
    assert list(report.rejected) == [2]
    assert "the norm of its statistics is" in report.rejected[2]


def skipping(
    changes: Mapping[int, Change], until: int = 1, cohort: Sequence[int] = (0, 1, 2), **guard: Any
) -> tuple[list[tuple[ServerState, RoundReport]], ServerState, MemoryStore]:
    """Rounds of scaffold with manipulated replies, the state before them, and the memories."""
    simulation = make_simulation(scaffold(), sampler=fixed_cohorts([list(cohort)] * until))
    simulation = replace(
        simulation, engine=Tampered(simulation.engine, changes), guard=Guard(**guard)
    )
    state, store = init_state(simulation, initial_model(simulation.federation.build)), MemoryStore()
    return list(rounds(simulation, state, store, until)), state, store


def test_a_round_with_too_few_valid_replies_is_skipped() -> None:
    nan = MALICIOUS["NaN"][0]
    ((state, report),), before, store = skipping({0: nan, 1: nan}, min_replies=2)
    why = "upload 'model': tensor 'head.weight' is not finite"
    assert report.skipped == (
        f"only 1 of 3 replies are valid, and guard.min_replies=2 (clients 0, 1: {why})"
    )
    assert report.rejected == {0: why, 1: why}
    assert report.loss is None
    assert state.round == 1
    assert sha256(state.tensors()) == sha256(before.tensors())
    assert all(store.recall(c) == {} for c in range(3))


def test_a_skipped_round_does_not_stop_the_next_ones() -> None:
    """Only one of the rounds has a client that can be used."""
    simulation = make_simulation(scaffold(), sampler=fixed_cohorts([[1], [0, 2], [1]]))
    engine = Tampered(simulation.engine, {1: MALICIOUS["NaN"][0]})
    simulation = replace(simulation, engine=engine, guard=Guard(max_skipped=1))
    state = init_state(simulation, initial_model(simulation.federation.build))
    done = list(rounds(simulation, state, MemoryStore(), 3))
    assert [report.skipped is None for _, report in done] == [False, True, False]
    assert sha256(done[1][0].params) == sha256(done[2][0].params) != sha256(state.params)


def test_too_many_skipped_rounds_in_a_row_stop_the_run() -> None:
    """Every update contains NaN or Inf: the message says so and how to fix it."""
    simulation = make_simulation(scaffold(), sampler=fixed_cohorts([[1]] * 9))
    engine = Tampered(simulation.engine, {1: MALICIOUS["NaN"][0]})
    simulation = replace(simulation, engine=engine, guard=Guard(max_skipped=2))
    state = init_state(simulation, initial_model(simulation.federation.build))
    yielded = []
    with pytest.raises(TooManySkipped) as error:
        for after, _ in rounds(simulation, state, MemoryStore(), 9):
            yielded.append(after.round)
    assert yielded == [1, 2, 3]  # each can be saved, so that a resumed run goes on after them
    assert error.value.client == 1
    assert str(error.value) == (
        "3 rounds in a row were skipped, and guard.max_skipped=2; round 3: training diverged: "
        "every update contains NaN or Inf (client 1: upload 'model': tensor 'head.weight' is not "
        "finite); lower train.lr or set train.clip"
    )


def test_a_strict_guard_stops_at_the_first_invalid_reply() -> None:
    with pytest.raises(RunError, match="round 1: the reply of client 1 is not valid: upload 'mod"):
        skipping({1: MALICIOUS["NaN"][0]}, strict=True)


def test_an_aggregated_model_that_is_not_finite_is_not_used() -> None:
    """Two updates within the bound may still overflow together, or in a stage of the method."""

    def overflow(memory: Any, cohort: Cohort) -> tuple[Any, Cohort]:
        return memory, cohort.with_mean("model", {"head.bias": torch.full((3,), torch.inf)})

    stage = Stage("optimise", "overflow", no_memory, overflow)
    method = Method("overflow", server=(mean(), stage, apply_mean()))
    simulation = replace(make_simulation(method), guard=Guard())
    state = init_state(simulation, initial_model(simulation.federation.build))
    ((after, report),) = rounds(simulation, state, MemoryStore(), 1)
    assert report.skipped == "the aggregated model: tensor 'head.bias' is not finite"
    assert sha256(after.tensors()) == sha256(state.tensors())


def test_every_memory_of_a_stage_is_checked() -> None:
    good, bad = {"w": torch.zeros(2)}, {"w": torch.tensor([0.0, torch.nan])}
    for memory in ({"first": bad, "second": good}, {"first": good, "second": bad}):
        problem = NO_TENSORS.state_problem(ServerState(1, {}, {"adam": memory}))
        assert problem is not None and problem.endswith("of stage 'adam': tensor 'w' is not finite")
    assert NO_TENSORS.state_problem(ServerState(1, {}, {"adam": {"first": good}})) is None


def test_replies_are_put_in_client_order() -> None:
    replies = [(c, Reply(c, 1, 1, {"model": {}})) for c in (5, 2, 9)]
    valid, rejected = NO_TENSORS.split(replies, asked=[2, 5, 9])
    assert [r.client for r in valid] == [2, 5, 9]
    assert rejected == {}


def test_a_client_counts_once() -> None:
    twice = [
        (2, Reply(2, 1, 1, {"model": {}})),
        (2, Reply(2, 9, 9, {"model": {}})),
        (3, Reply(3, 1, 1, {"model": {}})),
    ]
    valid, rejected = NO_TENSORS.split(twice, asked=[2, 3])
    assert [(r.client, r.samples) for r in valid] == [(2, 1), (3, 1)]
    assert rejected == {2: "it was not asked, or has answered already"}


def test_a_client_without_an_answer_is_named() -> None:
    absent = (3, Absent(3, "it was not done after 2 s (guard.timeout)"))
    valid, rejected = NO_TENSORS.split([absent], asked=[2, 3])
    assert valid == []
    assert rejected == {2: "it gave no answer", 3: "it was not done after 2 s (guard.timeout)"}


def test_a_client_cannot_answer_for_another() -> None:
    """Client 1 claims to be client 6: its reply is rejected; client 6 keeps its memory."""
    without, _, _ = one_round([0, 2], {})
    state, report, store = one_round([0, 1, 2], {1: lambda r: replace(r, client=6)})
    assert report.rejected == {1: "it claims to be client 6"}
    assert sha256(state.tensors()) == sha256(without.tensors())
    assert store.recall(6) == {}
