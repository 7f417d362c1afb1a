"""The messages between the server and a site: what is asked, and what is answered.

A message is a few named parts, each of them facts and tensors as bytes (envelope.py). A request has
the part "request"; one for work also has the part "broadcast", which is the same for all sites of a
round. A reply has the part "reply". Every request and every reply begins with these facts:

    kind      see below
    request   id of the request. A request that is sent again has the same id, so that a site can
              give the answer that it has already; a reply repeats the id of its request.
    run       id of the run: fedloom's own, which stays the same when a run is resumed
    site      name of the site that is asked, or that replies

Requests, with their further facts:

    hello           "Who are you, and what data do you have?"
    setup           "This is what was agreed for the run."
                      digest      of the agreement
                      agreement   all of it, as JSON
    work            "Do this for these clients."
                      setup       digest of the agreement that the work belongs to
                      broadcast   checksum of the part "broadcast"
                      oldest      the oldest round that the server may go back to; a site can forget
                                  what it keeps for earlier ones. null: keep everything
                      tasks       a list of {number, slots}: of the client (for the work "evaluate"
                                  of the piece, which is the client whose test data are meant), and
                                  the names of what the server carries for it
                    tensors: "INDEX\\nmemories\\nSLOT\\nNAME", INDEX counts the tasks from 0
                    Part "broadcast": facts kind ("broadcast"), work, round, timeout (seconds for a
                    client, or null), shared (names); tensors "sent\\nparams\\nNAME" and
                    "sent\\nshared GROUP\\nNAME".

Replies, with their further facts:

    hello           report        what the site says of itself, as JSON
    setup           digest        of the agreement, which the site has accepted
    answers         setup, work, round   those of the request
                    answers       a list of {number, answer}: the facts of `engines.wire.pack`
                    tensors: "INDEX\\n" and the names of `engines.wire.pack`, INDEX counts the
                    answers from 0
    unknown setup   setup         the digest that the site does not know: send the setup, then the
                                  work again
    error           reason        one line for the user
                    fatal         whether asking again is of no use
                    `request`, `run` and `site` are empty if the request could not be read.

The server makes requests with `hello_request`, `setup_request`, `broadcast_part` and
`work_request`; a site reads them with `read_request`, which returns a HelloRequest, a SetupRequest
or a WorkRequest. A site replies with `hello_reply`, `setup_reply`, `answers_reply`,
`unknown_setup_reply` and `error_reply`; the server reads them with `read_reply`. Both readers raise
WireError for whatever is not such a message, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor

from fedloom.core.client import Broadcast, Task, Work, task_for
from fedloom.core.errors import shortened, shown
from fedloom.core.json_checks import (
    Check,
    anything,
    boolean,
    checksum,
    fields,
    integer,
    list_of,
    mapping_of,
    number,
    optional,
    text,
)
from fedloom.core.params import Params
from fedloom.core.server import Absent
from fedloom.core.tensor_checks import type_problem
from fedloom.engines.flower import envelope
from fedloom.engines.flower.envelope import Message, decode, encode
from fedloom.engines.wire import Facts, WireError, flatten, pack, unflatten, unpack

Parts = Mapping[str, bytes]

REQUEST, BROADCAST, REPLY = "request", "broadcast", "reply"  # names of parts
_WORKS = get_args(Work)


@dataclass(frozen=True)
class Header:
    """The facts with which every message begins."""

    request: str
    run: str
    site: str

    def facts(self, kind: str, **more: Any) -> Facts:
        """The facts of a message of this kind."""
        begin = {"kind": kind, "request": self.request, "run": self.run, "site": self.site}
        return {**begin, **more}


NO_HEADER = Header("", "", "")  # of a reply to something that cannot be read


# ------------------------------------------------------------------ requests


@dataclass(frozen=True)
class HelloRequest:
    header: Header


@dataclass(frozen=True)
class SetupRequest:
    header: Header
    digest: str
    agreement: Facts


@dataclass(frozen=True)
class WorkRequest:
    """setup: digest of the agreement. oldest: the oldest round the server may go back to."""

    header: Header
    setup: str
    sent: Broadcast
    tasks: tuple[Task, ...]
    oldest: int | None = None


Request = HelloRequest | SetupRequest | WorkRequest


def hello_request(header: Header) -> Parts:
    return {REQUEST: encode(header.facts("hello"))}


def setup_request(header: Header, digest: str, agreement: Mapping[str, Any]) -> Parts:
    """agreement: JSON, whose digest is given by whoever made it."""
    return {REQUEST: encode(header.facts("setup", digest=digest, agreement=agreement))}


def broadcast_part(sent: Broadcast) -> bytes:
    """The part of a work request that is the same for all sites."""
    facts = {
        "kind": "broadcast",
        "work": sent.work,
        "round": sent.round,
        "timeout": sent.timeout,
        "shared": list(sent.shared),
    }
    shared = {f"shared {name}": params for name, params in sent.shared.items()}
    return encode(facts, flatten({"params": sent.params, **shared}, "sent"))


def work_request(
    header: Header, setup: str, broadcast: bytes, tasks: Sequence[Task], oldest: int | None = None
) -> Parts:
    """broadcast: what `broadcast_part` made. tasks: those of the clients of this site."""
    facts = header.facts(
        "work",
        setup=setup,
        broadcast=envelope.checksum(broadcast),
        oldest=oldest,
        tasks=[{"number": task.number, "slots": list(task.memories)} for task in tasks],
    )
    tensors = _numbered([flatten(task.memories, "memories") for task in tasks])
    return {BROADCAST: broadcast, REQUEST: encode(facts, tensors)}


def read_request(parts: Parts, limit: int) -> Request:
    """The request in these parts. limit: bytes that are accepted, of all parts together."""
    return _read(parts, REQUEST, limit, _REQUESTS, "request")


def _read_work(header: Header, message: Message, parts: Parts, limit: int) -> WorkRequest:
    facts = message.facts
    sent = _read_broadcast(parts.get(BROADCAST), facts["broadcast"], limit)
    carried = _split(message.tensors, len(facts["tasks"]))
    tasks = tuple(
        task_for(sent.work, task["number"], _slots(tensors, task["slots"]))
        for task, tensors in zip(facts["tasks"], carried, strict=True)
    )
    _check_different([task.number for task in tasks], "task")
    return WorkRequest(header, facts["setup"], sent, tasks, facts["oldest"])


def _read_broadcast(data: bytes | None, expected: str, limit: int) -> Broadcast:
    if data is None:
        raise WireError(f"a request for work without the part '{BROADCAST}'")
    facts, tensors = decode(data, limit)
    if envelope.checksum(data) != expected:
        raise WireError("a request for work with the broadcast of another request")
    _check_fields(facts, _BROADCAST, BROADCAST)
    groups = _groups(tensors, "sent")
    shared = {name: groups.get(f"shared {name}", {}) for name in facts["shared"]}
    params = groups.get("params", {})
    return Broadcast(facts["work"], facts["round"], params, shared, facts["timeout"])


# ------------------------------------------------------------------ replies


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
    return {REPLY: encode(facts, _numbered([message.tensors for message in packed]))}


def _sendable(task: int, answer: Any) -> Message:
    """The answer, split; an Absent if a method of the user made an answer that cannot be sent."""
    try:
        packed = pack(answer)
        json.dumps(packed.facts)
        problem = type_problem(packed.tensors)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        packed = pack(Absent(task, shortened(f"its answer cannot be sent: {problem}")))
    return Message(packed.facts, packed.tensors)


def unknown_setup_reply(request: WorkRequest) -> Parts:
    return {REPLY: encode(request.header.facts("unknown setup", setup=request.setup))}


def error_reply(header: Header, reason: str, fatal: bool = False) -> Parts:
    """header: NO_HEADER if the request could not be read."""
    return {REPLY: encode(header.facts("error", reason=shortened(reason), fatal=fatal))}


def read_reply(parts: Parts, limit: int) -> Reply:
    """The reply in these parts. limit: bytes that are accepted, of all parts together."""
    return _read(parts, REPLY, limit, _REPLIES, "reply")


def _read_answers(header: Header, message: Message, parts: Parts, limit: int) -> AnswersReply:
    facts = message.facts
    items = facts["answers"]
    _check_different([item["number"] for item in items], "answer")
    tensors = _split(message.tensors, len(items))
    answers = {
        item["number"]: _answer(item["number"], item["answer"], own)
        for item, own in zip(items, tensors, strict=True)
    }
    return AnswersReply(header, facts["setup"], facts["work"], facts["round"], answers)


def _answer(task: int, facts: Facts, tensors: Params) -> Any:
    try:
        return unpack(facts, tensors)
    except WireError as error:
        return Absent(task, f"its site sent {error}")


# ------------------------------------------------------------------ reading any of them

_HEADER: dict[str, Check] = {"kind": text(), "request": text(), "run": text(), "site": text()}
_TASK = fields({"number": integer(), "slots": list_of(text())})
_ANSWER = fields({"number": integer(), "answer": mapping_of(anything())})


def _one_of(choices: Sequence[str]) -> Check:
    listed = ", ".join(f"'{choice}'" for choice in choices)
    return lambda value, path: (
        None if value in choices else f"field '{path}' is {shown(value)}, and must be: {listed}"
    )


_BROADCAST: dict[str, Check] = {
    "kind": _one_of([BROADCAST]),
    "work": _one_of(_WORKS),
    "round": integer(),
    "timeout": optional(number(low=0)),
    "shared": list_of(text()),
}

_Reader = Callable[[Header, Message, Parts, int], Any]
# by kind: the facts besides the header, and what makes the message of them
_Kinds = Mapping[str, tuple[dict[str, Check], _Reader]]

_REQUESTS: _Kinds = {
    "hello": ({}, lambda header, message, parts, limit: HelloRequest(header)),
    "setup": (
        {"digest": checksum(), "agreement": mapping_of(anything())},
        lambda header, message, parts, limit: SetupRequest(
            header, message.facts["digest"], message.facts["agreement"]
        ),
    ),
    "work": (
        {
            "setup": checksum(),
            "broadcast": checksum(),
            "oldest": optional(integer()),
            "tasks": list_of(_TASK),
        },
        _read_work,
    ),
}

_REPLIES: _Kinds = {
    "hello": (
        {"report": mapping_of(anything())},
        lambda header, message, parts, limit: HelloReply(header, message.facts["report"]),
    ),
    "setup": (
        {"digest": checksum()},
        lambda header, message, parts, limit: SetupReply(header, message.facts["digest"]),
    ),
    "answers": (
        {
            "setup": checksum(),
            "work": _one_of(_WORKS),
            "round": integer(),
            "answers": list_of(_ANSWER),
        },
        _read_answers,
    ),
    "unknown setup": (
        {"setup": checksum()},
        lambda header, message, parts, limit: UnknownSetupReply(header, message.facts["setup"]),
    ),
    "error": (
        {"reason": text(), "fatal": boolean()},
        lambda header, message, parts, limit: ErrorReply(
            header, shortened(message.facts["reason"]), message.facts["fatal"]
        ),
    ),
}


def _read(parts: Parts, name: str, limit: int, kinds: _Kinds, what: str) -> Any:
    """The message in the part of this name, by the table of its kinds."""
    envelope.check_size(sum(len(part) for part in parts.values()), limit)
    if name not in parts:
        raise WireError(f"a message without the part '{name}'")
    message = decode(parts[name], limit)
    kind = message.facts.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise WireError(f"a {what} of unknown kind {shown(kind)}")
    own, read = kinds[kind]
    _check_fields(message.facts, {**_HEADER, **own}, what)
    header = Header(*(message.facts[name] for name in ("request", "run", "site")))
    return read(header, message, parts, limit)


def _check_fields(facts: Facts, checks: Mapping[str, Check], what: str) -> None:
    problem = fields(checks)(facts, "")
    if problem is not None:
        raise WireError(f"a malformed {what}: {problem}")


def _check_different(numbers: Sequence[int], what: str) -> None:
    if len(set(numbers)) < len(numbers):
        twice = next(n for n in numbers if numbers.count(n) > 1)
        raise WireError(f"a message with more than one {what} for number {twice}")


def _numbered(items: Sequence[Mapping[str, Tensor]]) -> Params:
    """The tensors of several items as one flat dictionary; `_split` is the inverse."""
    return {f"{i}\n{name}": t for i, item in enumerate(items) for name, t in item.items()}


def _split(tensors: Mapping[str, Tensor], count: int) -> list[Params]:
    indices = {str(i): i for i in range(count)}
    items: list[Params] = [{} for _ in range(count)]
    for path, tensor in tensors.items():
        index, _, name = path.partition("\n")
        if index not in indices:
            raise WireError(f"a message with the tensor {shown(path)}, which belongs to nothing")
        items[indices[index]][name] = tensor
    return items


def _slots(tensors: Params, names: Sequence[str]) -> dict[str, Params]:
    memories = _groups(tensors, "memories")
    return {name: memories.get(name, {}) for name in names}


def _groups(tensors: Params, prefix: str) -> dict[str, Params]:
    try:
        return unflatten(tensors, prefix)
    except ValueError:
        raise WireError("a message with a tensor that belongs to no group") from None
