"""What a site replies to the server; messages.py has the format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedloom.core.errors import shortened
from fedloom.core.json_checks import (
    anything,
    boolean,
    checksum,
    fields,
    integer,
    list_of,
    mapping_of,
    text,
)
from fedloom.core.params import Params
from fedloom.core.request import Work
from fedloom.core.server import Absent
from fedloom.core.tensor_checks import type_problem
from fedloom.engines.flower.envelope import encode
from fedloom.engines.flower.message_form import (
    REPLY,
    Header,
    Kinds,
    Parts,
    Received,
    a_work,
    check_different,
    numbered,
    read,
    split,
)
from fedloom.engines.flower.requests import WorkRequest
from fedloom.engines.wire import Facts, Packed, WireError, pack, unpack


@dataclass(frozen=True)
class HelloReply:
    header: Header
    report: Facts


@dataclass(frozen=True)
class SetupReply:
    header: Header
    digest: str


@dataclass(frozen=True)
class AnswersReply:
    """answers: by number of the task; Absent for one that is malformed."""

    header: Header
    setup: str
    work: Work
    round: int
    answers: Mapping[int, Any]


@dataclass(frozen=True)
class UnknownSetupReply:
    header: Header
    setup: str


@dataclass(frozen=True)
class ErrorReply:
    """fatal: the site will give the same answer if it is asked again."""

    header: Header
    reason: str
    fatal: bool = False


Reply = HelloReply | SetupReply | AnswersReply | UnknownSetupReply | ErrorReply


def hello_reply(header: Header, report: Mapping[str, Any]) -> Parts:
    """header: of the request, here and in all replies. report: JSON."""
    return {REPLY: encode(header.facts("hello", report=report))}


def setup_reply(header: Header, digest: str) -> Parts:
    return {REPLY: encode(header.facts("setup", digest=digest))}


def answers_reply(request: WorkRequest, answers: Iterable[tuple[int, Any]]) -> Parts:
    """answers: as an engine gives them. One that cannot be sent is replaced by an Absent."""
    numbers, packed = [], []
    for task, answer in answers:
        numbers.append(task)
        packed.append(_sendable(task, answer))
    facts = request.header.facts(
        "answers",
        setup=request.setup,
        work=request.sent.work,
        round=request.sent.round,
        answers=[
            {"number": n, "answer": message.facts}
            for n, message in zip(numbers, packed, strict=True)
        ],
    )
    return {REPLY: encode(facts, numbered([message.tensors for message in packed]))}


def _sendable(task: int, answer: Any) -> Packed:
    """The answer, split; an Absent if a user-defined method made an answer that cannot be sent."""
    try:
        packed = pack(answer)
        json.dumps(packed.facts)
        problem = type_problem(packed.tensors)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        packed = pack(Absent(task, shortened(f"its answer cannot be sent: {problem}")))
    return packed


def unknown_setup_reply(request: WorkRequest) -> Parts:
    return {REPLY: encode(request.header.facts("unknown setup", setup=request.setup))}


def error_reply(header: Header, reason: str, fatal: bool = False) -> Parts:
    """header: NO_HEADER if the request could not be read."""
    return {REPLY: encode(header.facts("error", reason=shortened(reason), fatal=fatal))}


def read_reply(parts: Parts, limit: int) -> Reply:
    """The reply in these parts. limit: bytes that are accepted, of all parts together."""
    return read(parts, REPLY, limit, _KINDS)


def _answers(received: Received) -> AnswersReply:
    facts = received.facts
    items = facts["answers"]
    check_different([item["number"] for item in items], "answer")
    answers = {
        item["number"]: _answer(item["number"], item["answer"], tensors)
        for item, tensors in zip(items, split(received.tensors, len(items)), strict=True)
    }
    return AnswersReply(received.header, facts["setup"], facts["work"], facts["round"], answers)


def _answer(task: int, facts: Facts, tensors: Params) -> Any:
    try:
        return unpack(facts, tensors)
    except WireError as error:
        return Absent(task, f"its site sent {error}")


_ANSWER = fields({"number": integer(), "answer": mapping_of(anything())})
_KINDS: Kinds[Reply] = {
    "hello": (
        {"report": mapping_of(anything())},
        lambda received: HelloReply(received.header, received.facts["report"]),
    ),
    "setup": (
        {"digest": checksum()},
        lambda received: SetupReply(received.header, received.facts["digest"]),
    ),
    "answers": (
        {"setup": checksum(), "work": a_work, "round": integer(), "answers": list_of(_ANSWER)},
        _answers,
    ),
    "unknown setup": (
        {"setup": checksum()},
        lambda received: UnknownSetupReply(received.header, received.facts["setup"]),
    ),
    "error": (
        {"reason": text(), "fatal": boolean()},
        lambda received: ErrorReply(
            received.header, shortened(received.facts["reason"]), received.facts["fatal"]
        ),
    ),
}
