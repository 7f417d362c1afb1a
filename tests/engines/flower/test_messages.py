"""Every request and reply comes back as it was; whatever is not one is a WireError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.client_error import ClientError
from fedloom.core.evaluate import ClassCounts, Evaluation
from fedloom.core.request import Broadcast, ClientTask, EvaluationTask
from fedloom.core.server import Absent, Reply
from fedloom.engines.flower.envelope import decode, encode
from fedloom.engines.flower.messages import (
    BROADCAST,
    REPLY,
    REQUEST,
    AnswersReply,
    ErrorReply,
    Header,
    HelloReply,
    HelloRequest,
    Parts,
    SetupReply,
    SetupRequest,
    UnknownSetupReply,
    WorkRequest,
    answers_reply,
    broadcast_part,
    error_reply,
    hello_reply,
    hello_request,
    read_reply,
    read_request,
    setup_reply,
    setup_request,
    unknown_setup_reply,
    work_request,
)
from fedloom.engines.wire import WireError

LIMIT = 10**6
HEADER = Header("abc-1", "run-1", "north")
DIGEST = "0a" * 32
SENT = Broadcast(
    "train", 4, {"w": torch.ones(2)}, {"none": {}, "mean": {"w": torch.tensor(1)}}, 2.5
)
TASKS = [ClientTask(3, {"m": {"a": torch.ones(1)}, "empty": {}}), ClientTask(11)]


def work(sent: Broadcast = SENT, tasks: Any = TASKS) -> WorkRequest:
    parts = work_request(HEADER, DIGEST, broadcast_part(sent), tasks, 2)
    request = read_request(parts, LIMIT)
    assert isinstance(request, WorkRequest)
    return request


def test_hello_and_setup() -> None:
    assert read_request(hello_request(HEADER), LIMIT) == HelloRequest(HEADER)
    agreement = {"classes": ["a"], "mean": [0.5]}
    request = read_request(setup_request(HEADER, DIGEST, agreement), LIMIT)
    assert request == SetupRequest(HEADER, DIGEST, agreement)
    assert read_reply(hello_reply(HEADER, {"x": 1}), LIMIT) == HelloReply(HEADER, {"x": 1})
    assert read_reply(setup_reply(HEADER, DIGEST), LIMIT) == SetupReply(HEADER, DIGEST)


def test_work() -> None:
    request = work()
    assert (request.header, request.setup, request.oldest) == (HEADER, DIGEST, 2)
    sent = request.sent
    assert (sent.work, sent.round, sent.timeout) == ("train", 4, 2.5)
    assert torch.equal(sent.params["w"], torch.ones(2))
    assert sent.shared == {"none": {}, "mean": {"w": torch.tensor(1)}}
    assert [task.number for task in request.tasks] == [3, 11]
    assert request.tasks[0].memories == {"m": {"a": torch.ones(1)}, "empty": {}}
    assert request.tasks[1].memories == {}


def test_pieces_of_an_evaluation_are_tasks_of_their_own_kind() -> None:
    sent = Broadcast("evaluate", 1, {})
    assert work(sent, [EvaluationTask(2)]).tasks == (EvaluationTask(2),)


def test_the_broadcast_is_the_same_object_for_all_sites() -> None:
    part = broadcast_part(SENT)
    requests = [work_request(HEADER, DIGEST, part, tasks) for tasks in (TASKS, [])]
    assert all(parts[BROADCAST] is part for parts in requests)


ANSWERS = {
    3: Reply(3, 9, 8, {"model": {"w": torch.ones(2)}, "none": {}}, {"m": {}}, 0.5, 7),
    11: Absent(11, "it failed"),
    4: Evaluation(ClassCounts(torch.ones(2), torch.ones(2), 0.1), 2.0, {"auroc": 0.5}),
    5: {"w": torch.zeros(1, dtype=torch.bool)},
    6: {"mean": {"x": torch.tensor(2)}, "none": {}},
}


def test_answers_of_every_kind() -> None:
    reply = read_reply(answers_reply(work(), ANSWERS.items()), LIMIT)
    assert isinstance(reply, AnswersReply)
    assert (reply.header, reply.setup, reply.work, reply.round) == (HEADER, DIGEST, "train", 4)
    assert list(reply.answers) == list(ANSWERS)
    for number, answer in ANSWERS.items():
        assert repr(reply.answers[number]) == repr(answer)


def test_the_error_of_a_client_arrives_with_its_place() -> None:
    error = ClientError(11, 4, 0, 3, [[4, 2]], "ValueError: no")
    (answer,) = read_reply(answers_reply(work(), [(11, error.absent())]), LIMIT).answers.values()
    assert isinstance(answer.error, ClientError)
    assert str(answer.error) == str(error)


@pytest.mark.parametrize(
    "unsendable",
    [
        object(),
        Reply(3, 1, 1, {"model": {"w": "text"}}),
        Reply(3, 1, 1, {"model": {"w": torch.eye(2).to_sparse()}}),
        Reply(3, 1, 1, {}, loss=object()),
    ],
)
def test_an_answer_that_cannot_be_sent_costs_that_client_only(unsendable: Any) -> None:
    reply = read_reply(answers_reply(work(), [(3, unsendable), (5, ANSWERS[5])]), LIMIT)
    assert reply.answers[3].reason.startswith("its answer cannot be sent")
    assert reply.answers[5] == ANSWERS[5]


def test_the_other_replies() -> None:
    assert read_reply(unknown_setup_reply(work()), LIMIT) == UnknownSetupReply(HEADER, DIGEST)
    expected = ErrorReply(HEADER, "two lines", True)
    assert read_reply(error_reply(HEADER, "two\nlines", True), LIMIT) == expected


# ------------------------------------------------------------------ what is not a message


def changed(parts: Parts, name: str, change: Callable[[Any, Any], Any]) -> Parts:
    facts, tensors = decode(parts[name], LIMIT)
    change(facts, tensors)
    return {**parts, name: encode(facts, tensors)}


WORK = work_request(HEADER, DIGEST, broadcast_part(SENT), TASKS)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (REQUEST, lambda f, t: f.update(kind="steal"), "a request of unknown kind 'steal'"),
        (REQUEST, lambda f, t: f.update(kind=["work"]), "a request of unknown kind"),
        (REQUEST, lambda f, t: f.pop("run"), "field 'run' is missing"),
        (REQUEST, lambda f, t: f.update(more=1), "field 'more' is missing or unknown"),
        (REQUEST, lambda f, t: f.update(setup="x"), "must be a sha256"),
        (REQUEST, lambda f, t: f.update(oldest=-1), "field 'oldest'"),
        (REQUEST, lambda f, t: f["tasks"].append(3), "field 'tasks\\[2\\]'"),
        (REQUEST, lambda f, t: f["tasks"][0].update(number=-1), "number"),
        (REQUEST, lambda f, t: f["tasks"][0].update(number=11), "more than one task"),
        (REQUEST, lambda f, t: t.update(w=torch.ones(1)), "belongs to nothing"),
        (REQUEST, lambda f, t: t.update({"9\nm\na\nw": torch.ones(1)}), "belongs to nothing"),
        (REQUEST, lambda f, t: t.update({"0\nw": torch.ones(1)}), "belongs to no group"),
        (REQUEST, lambda f, t: f.update(broadcast=DIGEST), "broadcast of another request"),
        (BROADCAST, lambda f, t: f.update(round=5), "broadcast of another request"),
    ],
)
def test_malformed_requests(name: str, change: Any, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_request(changed(WORK, name, change), LIMIT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f, t: f.update(kind="broad"), "field 'kind'"),
        (lambda f, t: f.update(work="steal"), "field 'work' is 'steal', and must be: 'train'"),
        (lambda f, t: f.update(work=[]), "field 'work'"),
        (lambda f, t: f.update(round=True), "field 'round'"),
        (lambda f, t: f.update(timeout=-1), "field 'timeout'"),
        (lambda f, t: f.update(shared="x"), "field 'shared'"),
        (lambda f, t: t.update(w=torch.ones(1)), "belongs to no group"),
    ],
)
def test_malformed_broadcasts(change: Any, reason: str) -> None:
    part = changed({BROADCAST: broadcast_part(SENT)}, BROADCAST, change)[BROADCAST]
    with pytest.raises(WireError, match=reason):
        read_request(work_request(HEADER, DIGEST, part, TASKS), LIMIT)


def test_missing_parts() -> None:
    with pytest.raises(WireError, match="without the part 'request'"):
        read_request({BROADCAST: WORK[BROADCAST]}, LIMIT)
    with pytest.raises(WireError, match="without the part 'broadcast'"):
        read_request({REQUEST: WORK[REQUEST]}, LIMIT)
    with pytest.raises(WireError, match="without the part 'reply'"):
        read_reply({}, LIMIT)


def test_the_limit_holds_for_all_parts_together() -> None:
    size = sum(len(part) for part in WORK.values())
    read_request(WORK, size)
    with pytest.raises(WireError, match=f"{size:,} bytes, and at most {size - 1:,}"):
        read_request(WORK, size - 1)
    with pytest.raises(WireError, match="at most"):
        read_reply({**hello_reply(HEADER, {}), "ballast": b"x" * LIMIT}, LIMIT)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f, t: f.update(round=-1), "field 'round'"),
        (lambda f, t: f["answers"].append(f["answers"][0]), "more than one answer for number 3"),
        (lambda f, t: f["answers"][0].update(number="3"), "number"),
        (lambda f, t: f["answers"].clear(), "belongs to nothing"),
        (lambda f, t: f.update(site=3), "field 'site'"),
    ],
)
def test_malformed_replies(change: Any, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        read_reply(changed(answers_reply(work(), ANSWERS.items()), REPLY, change), LIMIT)


def test_a_malformed_answer_costs_that_client_only() -> None:
    def change(facts: Any, tensors: Any) -> None:
        facts["answers"][0]["answer"]["uploads"] = 7

    reply = read_reply(changed(answers_reply(work(), ANSWERS.items()), REPLY, change), LIMIT)
    assert reply.answers[3].reason.startswith("its site sent a malformed answer of kind 'reply'")
    assert reply.answers[11] == ANSWERS[11]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
FIELDS = ["kind", "request", "run", "setup", "tasks", "answers", "work", "round", "oldest"]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(FIELDS), JSON, st.sampled_from([REQUEST, REPLY]))
def test_any_fact_may_be_anything(field: str, value: Any, name: str) -> None:
    """Either the message is still one, or it is a WireError."""
    parts = WORK if name == REQUEST else answers_reply(work(), ANSWERS.items())
    forged = changed(parts, name, lambda f, t: f.update({field: value}))
    try:
        read_request(forged, LIMIT) if name == REQUEST else read_reply(forged, LIMIT)
    except WireError:
        return
    assert field in decode(forged[name], LIMIT).facts


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 4), JSON)
def test_any_answer_may_be_anything(index: int, value: Any) -> None:
    def change(facts: Any, tensors: Any) -> None:
        facts["answers"][index]["answer"] = value

    forged = changed(answers_reply(work(), ANSWERS.items()), REPLY, change)
    try:
        answers = read_reply(forged, LIMIT).answers
    except WireError:
        return
    assert isinstance(answers[list(ANSWERS)[index]], Absent)
