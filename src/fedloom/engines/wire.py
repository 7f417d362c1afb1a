"""Messages between the server's process and a worker: JSON for facts, an arena for tensors.

Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from fedloom.core.evaluate import ClassCounts
from fedloom.core.params import Params
from fedloom.core.server import Reply

Facts = dict[str, Any]


def send(connection: Connection, facts: Facts) -> None:
    """Send one message."""
    connection.send_bytes(json.dumps(facts).encode())


def receive(connection: Connection) -> Facts:
    """The next message; EOFError or OSError if the other side is gone."""
    facts: Facts = json.loads(connection.recv_bytes())
    return facts


@dataclass(frozen=True)
class Packed:
    """An answer, split into facts and tensors."""

    facts: Facts
    tensors: Params


def flatten(groups: Mapping[str, Mapping[str, Tensor]], prefix: str) -> Params:
    """Nested tensors as one flat dictionary; `unflatten` is the inverse."""
    return {
        f"{prefix}\n{group}\n{name}": tensor
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }


def unflatten(flat: Mapping[str, Tensor], prefix: str) -> dict[str, Params]:
    """What `flatten` was given with this prefix, except for groups without tensors."""
    groups: dict[str, Params] = {}
    for path, tensor in flat.items():
        kind, group, name = path.split("\n", 2)
        if kind == prefix:
            groups.setdefault(group, {})[name] = tensor
    return groups


def pack(answer: Any) -> Packed:
    """Split any answer of a client, to send it to another process."""
    match answer:
        case Reply():
            return _pack_reply(answer)
        case ClassCounts():
            counts = {"hits": answer.hits, "seen": answer.seen}
            facts = {"kind": "class counts", "loss": answer.loss}
            return Packed(facts, flatten({"": counts}, "counts"))
        case dict() if all(isinstance(v, Tensor) for v in answer.values()):
            return Packed({"kind": "params"}, flatten({"": answer}, "params"))
        case _:
            return Packed({"kind": "groups", "groups": list(answer)}, flatten(answer, "groups"))


def _pack_reply(reply: Reply) -> Packed:
    facts = {
        "kind": "reply",
        "client": reply.client,
        "samples": reply.samples,
        "seen": reply.seen,
        "loss": reply.loss,
        "steps": reply.steps,
        "uploads": list(reply.uploads),
        "slots": list(reply.memories),
    }
    return Packed(facts, flatten(reply.uploads, "uploads") | flatten(reply.memories, "memories"))


def unpack(facts: Facts, tensors: Mapping[str, Tensor]) -> Any:
    """The answer that was packed. Its tensors are copies, so that the arena can be reused."""
    copies = {path: t.clone() for path, t in tensors.items()}
    match facts["kind"]:
        case "reply":
            return Reply(
                client=facts["client"],
                samples=facts["samples"],
                seen=facts["seen"],
                uploads=_groups(copies, "uploads", facts["uploads"]),
                memories=_groups(copies, "memories", facts["slots"]),
                loss=facts["loss"],
                steps=facts["steps"],
            )
        case "class counts":
            return ClassCounts(**unflatten(copies, "counts")[""], loss=facts["loss"])
        case "params":
            return unflatten(copies, "params").get("", {})
        case _:
            return _groups(copies, "groups", facts["groups"])


def _groups(flat: Mapping[str, Tensor], prefix: str, names: list[str]) -> dict[str, Params]:
    """The groups of these names, also those without tensors."""
    groups = unflatten(flat, prefix)
    return {name: groups.get(name, {}) for name in names}
