"""What the server asks a site; messages.py has the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedloom.core.json_checks import (
    anything,
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
from fedloom.core.request import Broadcast, Task, task_for
from fedloom.engines.flower import envelope
from fedloom.engines.flower.envelope import decode, encode
from fedloom.engines.flower.message_form import (
    BROADCAST,
    REQUEST,
    Header,
    Kinds,
    Parts,
    Received,
    a_work,
    check_different,
    check_fields,
    groups,
    numbered,
    one_of,
    read,
    split,
)
from fedloom.engines.wire import Facts, WireError, flatten


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
    """agreement: JSON; its digest is computed by the server."""
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
    tensors = numbered([flatten(task.memories, "memories") for task in tasks])
    return {BROADCAST: broadcast, REQUEST: encode(facts, tensors)}


def read_request(parts: Parts, limit: int) -> Request:
    """The request in these parts. limit: bytes that are accepted, of all parts together."""
    return read(parts, REQUEST, limit, _KINDS)


def _work(received: Received) -> WorkRequest:
    facts = received.facts
    sent = _broadcast(received.parts.get(BROADCAST), facts["broadcast"], received.limit)
    carried = split(received.tensors, len(facts["tasks"]))
    tasks = tuple(
        task_for(sent.work, task["number"], _memories(tensors, task["slots"]))
        for task, tensors in zip(facts["tasks"], carried, strict=True)
    )
    check_different([task.number for task in tasks], "task")
    return WorkRequest(received.header, facts["setup"], sent, tasks, facts["oldest"])


def _memories(tensors: Params, slots: Sequence[str]) -> dict[str, Params]:
    memories = groups(tensors, "memories")
    return {slot: memories.get(slot, {}) for slot in slots}


def _broadcast(data: bytes | None, expected: str, limit: int) -> Broadcast:
    if data is None:
        raise WireError(f"a request for work without the part '{BROADCAST}'")
    facts, tensors = decode(data, limit)
    if envelope.checksum(data) != expected:
        raise WireError("a request for work with the broadcast of another request")
    check_fields(facts, _BROADCAST, BROADCAST)
    sent = groups(tensors, "sent")
    shared = {name: sent.get(f"shared {name}", {}) for name in facts["shared"]}
    params = sent.get("params", {})
    return Broadcast(facts["work"], facts["round"], params, shared, facts["timeout"])


_BROADCAST = {
    "kind": one_of([BROADCAST]),
    "work": a_work,
    "round": integer(),
    "timeout": optional(number(low=0)),
    "shared": list_of(text()),
}
_TASK = fields({"number": integer(), "slots": list_of(text())})
_KINDS: Kinds[Request] = {
    "hello": ({}, lambda received: HelloRequest(received.header)),
    "setup": (
        {"digest": checksum(), "agreement": mapping_of(anything())},
        lambda received: SetupRequest(
            received.header, received.facts["digest"], received.facts["agreement"]
        ),
    ),
    "work": (
        {
            "setup": checksum(),
            "broadcast": checksum(),
            "oldest": optional(integer()),
            "tasks": list_of(_TASK),
        },
        _work,
    ),
}
