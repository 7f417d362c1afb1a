"""Messages between the server's process and a worker: JSON for facts, an arena for tensors.

Nothing is pickled, and nothing about a message is taken for granted: one that no worker of ours
sends is a WireError. Whether a well-formed reply can be used is for the guard to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from fedloom.core.client_error import ClientError
from fedloom.core.errors import RunError, shortened, shown
from fedloom.core.evaluate import ClassCounts, Evaluation
from fedloom.core.params import Params
from fedloom.core.server import Absent, Reply

Facts = dict[str, Any]
MAX_BYTES = 2**28  # of a message; tensors are not part of it


class WireError(RunError):
    """A message that does not have the form of any that is sent here."""


def send(connection: Connection, facts: Facts) -> None:
    """Send one message."""
    connection.send_bytes(json.dumps(facts).encode())


def receive(connection: Connection) -> Facts:
    """The next message; EOFError or OSError if the other side is gone."""
    return parse(connection.recv_bytes(MAX_BYTES))


def parse(message: bytes) -> Facts:
    """The facts in a message."""
    try:
        facts = json.loads(message)
    except (ValueError, RecursionError):
        raise WireError("a message that is not JSON") from None
    if not isinstance(facts, dict):
        raise WireError(f"a message that is a {type(facts).__name__}, not a table of facts")
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
        case Absent():
            failed = answer.error.facts if isinstance(answer.error, ClientError) else None
            absent = {"client": answer.client, "reason": answer.reason, "failed": failed}
            return Packed({"kind": "absent", **absent}, {})
        case Evaluation():
            return _pack_evaluation(answer)
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


def _pack_evaluation(found: Evaluation) -> Packed:
    facts = {
        "kind": "evaluation",
        "loss": found.counts.loss,
        "units": found.units,
        "metrics": dict(found.metrics),
        "token_loss": found.token_loss,
    }
    tensors = {"hits": found.counts.hits, "seen": found.counts.seen}
    if len(found.predictions):
        tensors |= {"predictions": found.predictions, "targets": found.targets}
    return Packed(facts, flatten({"": tensors}, "evaluation"))


def unpack(facts: Facts, tensors: Mapping[str, Tensor]) -> Any:
    """The answer that was packed. Its tensors are copies, so that the arena can be reused."""
    copies = {path: t.clone() for path, t in tensors.items()}
    kind = facts.get("kind")
    if not isinstance(kind, str) or kind not in _UNPACK:
        raise WireError(f"an answer of unknown kind {shown(kind)}")
    try:
        return _UNPACK[kind](facts, copies)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        cause = f"{type(error).__name__}: {shortened(str(error), 80)}"
        raise WireError(f"a malformed answer of kind '{kind}' ({cause})") from error


def _unpack_reply(facts: Facts, tensors: Params) -> Reply:
    return Reply(
        client=facts["client"],
        samples=facts["samples"],
        seen=facts["seen"],
        uploads=_groups(tensors, "uploads", facts["uploads"]),
        memories=_groups(tensors, "memories", facts["slots"]),
        loss=facts["loss"],
        steps=facts["steps"],
    )


def _unpack_absent(facts: Facts, tensors: Params) -> Absent:
    failed = facts["failed"]
    error = None if failed is None else ClientError(**failed)
    return Absent(facts["client"], shortened(str(facts["reason"])), error)


def _unpack_evaluation(facts: Facts, tensors: Params) -> Evaluation:
    given = unflatten(tensors, "evaluation")[""]
    hits, seen = given.pop("hits"), given.pop("seen")
    if hits.dim() != 1 or hits.shape != seen.shape or hits.dtype != seen.dtype:
        raise ValueError("hits and seen are not two lists of counts")
    metrics = {str(name): float(value) for name, value in facts["metrics"].items()}
    counts = ClassCounts(hits, seen, float(facts["loss"]))
    by_token = facts["token_loss"]
    token_loss = None if by_token is None else float(by_token)
    return Evaluation(counts, float(facts["units"]), metrics, **given, token_loss=token_loss)


_UNPACK: dict[str, Callable[[Facts, Params], Any]] = {
    "reply": _unpack_reply,
    "absent": _unpack_absent,
    "evaluation": _unpack_evaluation,
    "params": lambda facts, tensors: unflatten(tensors, "params").get("", {}),
    "groups": lambda facts, tensors: _groups(tensors, "groups", facts["groups"]),
}


def _groups(flat: Mapping[str, Tensor], prefix: str, names: Any) -> dict[str, Params]:
    """The groups of these names, also those without tensors."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"the names of {prefix} are not a list of text")
    groups = unflatten(flat, prefix)
    return {name: groups.get(name, {}) for name in names}
