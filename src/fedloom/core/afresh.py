"""Questions of every round: all clients are asked at the round's weights, and those who train get what came of the answers.

Nothing of it is remembered. Weights and keys give the same answers again, so a run that was resumed is the same run, and no
checkpoint grows. All clients are sent the weights for it, also those who do not train, and all send an answer; every round counts
both. Whose answer is left out, stands in the report of the round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.params import Params, nbytes
from fedloom.core.pooling import Ask, Bill, pooled
from fedloom.core.state import ClientStore, ServerState


@dataclass(frozen=True)
class News:
    """The pooled answers by name, what they add to the bytes of the round, and whose answer was left out, with the reason."""

    shared: Mapping[str, Params] = field(default_factory=dict)
    bill: Bill = field(default_factory=Bill)
    refused: Mapping[int, str] = field(default_factory=dict)


def asked(federation: Federation, ask: Ask, state: ServerState, store: ClientStore, chosen: Sequence[int]) -> News:
    """What all clients say before the round; chosen: those who will train."""
    questions = [e for e in federation.method.prologue if e.again]
    if not questions:
        return News()
    everyone, refused = range(len(federation.clients)), dict[int, str]()
    said = ask(Broadcast("again", state.round, state.params), (Task(c, store.recall(c)) for c in everyone))
    answers = dict(sorted(said, key=lambda answer: answer[0]))
    shared = pooled(questions, answers, federation.key.fold("again", state.round, "pool"), refused.setdefault)
    up = sum(nbytes(p) for rooms in answers.values() for p in rooms.values())
    others = len(everyone) - len(chosen)  # for those who train, the report counts the weights
    down = nbytes(state.params) * others + sum(map(nbytes, shared.values())) * len(chosen)
    return News(shared, Bill(up, down), refused)


def training(state: ServerState, news: News) -> Broadcast:
    """What goes to those who train."""
    return Broadcast("train", state.round, state.params, {**state.shared, **news.shared})
