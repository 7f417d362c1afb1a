"""What goes between the server's process and a worker: JSON for the facts, an arena for the tensors, never a pickle."""

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
    """One message."""
    connection.send_bytes(json.dumps(facts).encode())


def receive(connection: Connection) -> Facts:
    """The next message; EOFError or OSError if the other side is gone."""
    facts: Facts = json.loads(connection.recv_bytes())
    return facts


@dataclass(frozen=True)
class Packed:
    """An answer taken apart into facts and tensors."""

    facts: Facts
    tensors: Params


def nest(rooms: Mapping[str, Mapping[str, Tensor]], prefix: str) -> Params:
    """Nested tensors in one flat dictionary; `unnest` puts them back."""
    return {f"{prefix}\n{room}\n{name}": t for room, p in rooms.items() for name, t in p.items()}


def unnest(flat: Mapping[str, Tensor], prefix: str) -> dict[str, Params]:
    """What `nest` took apart under the prefix; a room without tensors is not seen again."""
    rooms: dict[str, Params] = {}
    for path, t in flat.items():
        kind, room, name = path.split("\n", 2)
        if kind == prefix:
            rooms.setdefault(room, {})[name] = t
    return rooms


def pack(answer: Any) -> Packed:
    """Any answer a client can give."""
    match answer:
        case Reply():
            facts = {
                "kind": "reply",
                "client": answer.client,
                "samples": answer.samples,
                "seen": answer.seen,
            }
            facts |= {
                "loss": answer.loss,
                "steps": answer.steps,
                "uploads": list(answer.uploads),
                "slots": list(answer.memories),
            }
            return Packed(
                facts, nest(answer.uploads, "uploads") | nest(answer.memories, "memories")
            )
        case ClassCounts():
            return Packed(
                {"kind": "tally", "loss": answer.loss},
                nest({"": {"hits": answer.hits, "seen": answer.seen}}, "tally"),
            )
        case dict() if all(isinstance(v, Tensor) for v in answer.values()):
            return Packed({"kind": "params"}, nest({"": answer}, "params"))
        case _:
            return Packed({"kind": "rooms", "rooms": list(answer)}, nest(answer, "rooms"))


def unpack(facts: Facts, tensors: Mapping[str, Tensor]) -> Any:
    """The answer that was packed; its tensors are copies, so that the arena is free again."""
    own = {path: t.clone() for path, t in tensors.items()}
    match facts["kind"]:
        case "reply":
            uploads, memories = unnest(own, "uploads"), unnest(own, "memories")
            return Reply(
                client=facts["client"],
                samples=facts["samples"],
                seen=facts["seen"],
                uploads={word: uploads.get(word, {}) for word in facts["uploads"]},
                memories={slot: memories.get(slot, {}) for slot in facts["slots"]},
                loss=facts["loss"],
                steps=facts["steps"],
            )
        case "tally":
            return ClassCounts(**unnest(own, "tally")[""], loss=facts["loss"])
        case "params":
            return unnest(own, "params").get("", {})
        case _:
            rooms = unnest(own, "rooms")
            return {room: rooms.get(room, {}) for room in facts["rooms"]}
