"""What exchanges contribute to a round: pooled answers for the clients that train, and bytes.

Some exchanges are asked before each round, with the weights of that round (`Exchange.every_round`).
Of the others, which were asked before the run, the bytes that fall into the round are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedloom.core.exchange_answers import pool_answers, total_bytes, usable_answers
from fedloom.core.exchange_ledger import Traffic, count_traffic
from fedloom.core.federation import Federation
from fedloom.core.params import Params, nbytes
from fedloom.core.request import Ask, Broadcast, ClientTask
from fedloom.core.server import Memory
from fedloom.core.state import ClientStore, ServerState


@dataclass(frozen=True)
class ExchangeResult:
    """The exchanges of one round: pooled answers by name, bytes, and rejected clients."""

    shared: Mapping[str, Params] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    rejected: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundStart:
    """What the exchanges contribute to a round.

    sent       the broadcast to the clients that train.
    memory     the server's memory of exchanges after the round.
    traffic    bytes of the first exchanges and of those of the round.
    rejected   clients whose answer was left out, with the reason.
    """

    sent: Broadcast
    memory: dict[str, Memory]
    traffic: Traffic
    rejected: Mapping[int, str]


def start_round(
    federation: Federation, ask: Ask, state: ServerState, store: ClientStore, chosen: Sequence[int]
) -> RoundStart:
    """Everything that exchanges do in a round in which the chosen clients train."""
    result = ask_every_round(federation, ask, state, store, chosen)
    memory, traffic = count_traffic(federation, state, chosen)
    sent = training_broadcast(state, result)
    return RoundStart(sent, memory, traffic.plus(result.traffic), result.rejected)


def ask_every_round(
    federation: Federation, ask: Ask, state: ServerState, store: ClientStore, chosen: Sequence[int]
) -> ExchangeResult:
    """Ask all clients before the round; chosen: those that will train in it."""
    exchanges = [e for e in federation.method.prologue if e.every_round]
    if not exchanges:
        return ExchangeResult()
    clients, rejected = range(len(federation.clients)), dict[int, str]()
    broadcast = Broadcast("exchange every round", state.round, state.params)
    replies = ask(broadcast, (ClientTask(c, store.recall(c)) for c in clients))
    answers = usable_answers(exchanges, dict(replies), rejected.setdefault)
    key = federation.key.fold("again", state.round, "pool")
    shared = pool_answers(exchanges, answers, key, rejected.setdefault)
    # clients that train are sent the weights again, which the round report counts
    others = len(clients) - len(chosen)
    down = nbytes(federation.sent(state.params)) * others
    down += sum(map(nbytes, shared.values())) * len(chosen)
    return ExchangeResult(shared, Traffic(total_bytes(answers), down), rejected)


def training_broadcast(state: ServerState, result: ExchangeResult) -> Broadcast:
    """What is sent to the clients that train."""
    return Broadcast("train", state.round, state.params, {**state.shared, **result.shared})
