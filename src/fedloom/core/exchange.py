"""Exchanges: questions of a method to all clients, whose pooled answers are sent with the weights.

FedMix, for example, asks every client for averages of its data. There are two kinds:

first        asked before round 0, and again only if clients' data have changed when a run is
             resumed. A client downloads the pooled answers once and keeps them.
every round  asked before each round, with the weights of that round (`Exchange.every_round`).

Either way answers are checked, invalid ones are left out, and the others are pooled. The module
follows a run: notices before it starts, the first exchange, its repetition when the run is resumed,
and what happens in each round.

The server keeps a ledger of the first exchanges in its memory, so it is part of every checkpoint:

    up     bytes of answers that no round report has counted yet
    told   per client, whether it has downloaded the pooled answers
    turn   per client, the number of the exchange that it answered last
    seal   per client, a checksum of the data it answered from

From the ledger each byte is counted once: uploads in the report of the next round, a download in
the first round that a client takes part in. If the pooled answers change, all clients download
them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedloom.core.errors import RunError, shortened
from fedloom.core.federation import Federation
from fedloom.core.job import Data
from fedloom.core.key import Key
from fedloom.core.method import Exchange
from fedloom.core.params import Params, nbytes
from fedloom.core.request import Ask, Broadcast, ClientTask
from fedloom.core.server import Absent, Memory
from fedloom.core.state import ClientStore, ServerState
from fedloom.core.tensor_checks import first_not_finite, type_problem

MEMORY_NAME, LEDGER = "exchange", "ledger"  # where the ledger is in the server's memory

Notify = Callable[[str], None]  # shows a message to the user
Reject = Callable[[int, str], object]  # takes a client whose answer is left out, and the reason
Answers = Mapping[int, Mapping[str, Params]]  # by client, then by name of the exchange


class NoValidAnswer(RunError):
    """No client gave a valid answer to an exchange. rejected: why not, by client."""

    def __init__(self, exchange: str, rejected: Mapping[int, str]) -> None:
        self.rejected = rejected
        client, problem = next(iter(rejected.items()))
        super().__init__(
            f"every answer to the exchange '{exchange}' is invalid "
            f"(client {client}: {problem}); check the clients' data"
        )


# ------------------------------------------------------------------ before a run


def notices(federation: Federation, rounds: int) -> list[str]:
    """What the user has to know before clients are asked in a run of this many rounds.

    Raises UserError if a limit set by the user would be exceeded.
    """
    texts = []
    for exchange in federation.method.prologue:
        texts += _notice(exchange, federation, rounds if exchange.every_round else 1)
    return texts


def _notice(exchange: Exchange, federation: Federation, releases: int) -> list[str]:
    text = exchange.notice([len(data) for data in federation.clients], releases)
    return [f"exchange '{exchange.name}': {text}"] if text else []


# ------------------------------------------------------------------ the first exchange


def first_exchanges(federation: Federation) -> list[Exchange]:
    """The exchanges that are asked before round 0."""
    return [e for e in federation.method.prologue if not e.every_round]


def first_exchange(
    federation: Federation, ask: Ask, params: Params, notify: Notify
) -> tuple[dict[str, Params], dict[str, Memory]]:
    """Ask all clients before round 0: the pooled answers by name, and the server's memory of it."""
    if not first_exchanges(federation):
        return {}, {}
    turns = torch.zeros(len(federation.clients), dtype=torch.int64)
    answers = _ask_by_turn(federation, ask, params, turns, notify)
    pooled = _pool_first(federation, answers, notify)
    return pooled, _new_ledger(answers, turns, _checksums(federation.clients))


def repeat_if_data_changed(
    federation: Federation, ask: Ask, state: ServerState, notify: Notify
) -> ServerState:
    """The state, with the first exchange repeated if data of clients have changed since.

    Clients with unchanged data give the same answers, from the same key. The others draw from a new
    key: noise that is used twice could be subtracted out.
    """
    exchanges = first_exchanges(federation)
    if not exchanges:
        return state
    ledger = {name: t.cpu() for name, t in state.memory[MEMORY_NAME][LEDGER].items()}
    checksums = _checksums(federation.clients)
    number = int(ledger["turn"].max()) + 1
    if len(checksums) == len(ledger["seal"]):
        changed = checksums != ledger["seal"]
        turns = torch.where(changed, number, ledger["turn"])
    else:  # another number of clients: nothing tells which of them were asked before
        changed = torch.ones_like(checksums, dtype=torch.bool)
        turns = torch.full_like(checksums, number)
    if not bool(changed.any()):
        return state
    notify(
        f"note: the data of {int(changed.sum())} of {len(checksums)} clients have changed "
        "since the exchange, so it is repeated"
    )
    for exchange in exchanges:
        for text in _notice(exchange, federation, number + 1):
            notify(text)
    answers = _ask_by_turn(federation, ask, state.params, turns, notify)
    new_answers = {client: answer for client, answer in answers.items() if changed[client]}
    shared = {**state.shared, **_pool_first(federation, answers, notify)}
    memory = {**state.memory, **_new_ledger(new_answers, turns, checksums)}
    return replace(state, shared=shared, memory=memory)


def _ask_by_turn(
    federation: Federation, ask: Ask, params: Params, turns: Tensor, notify: Notify
) -> Answers:
    """The answers of all clients in client order, each drawn from the key of its turn."""
    answers: dict[int, Any] = {}
    turn_of = turns.tolist()
    for turn in sorted(set(turn_of)):
        tasks = [ClientTask(client) for client, own in enumerate(turn_of) if own == turn]
        answers |= dict(ask(Broadcast("exchange", turn, params), tasks))
    return usable_answers(first_exchanges(federation), answers, _notified(notify))


def _pool_first(federation: Federation, answers: Answers, notify: Notify) -> dict[str, Params]:
    exchanges, key = first_exchanges(federation), federation.key.fold("pool")
    return pool_answers(exchanges, answers, key, _notified(notify))


def _notified(notify: Notify) -> Reject:
    return lambda client, reason: notify(f"note: {reason}")


def _new_ledger(answers: Answers, turns: Tensor, checksums: Tensor) -> dict[str, Memory]:
    """The ledger after these answers were uploaded, before anyone has downloaded the result."""
    ledger = {
        "up": torch.tensor(_total_bytes(answers)),
        "told": torch.zeros(len(turns), dtype=torch.uint8),
        "turn": turns,
        "seal": checksums,
    }
    return {MEMORY_NAME: {LEDGER: ledger}}


def _checksums(clients: Sequence[Data]) -> Tensor:
    return torch.tensor([data.checksum() for data in clients])


# ------------------------------------------------------------------ checking and pooling answers


def usable_answers(
    exchanges: Sequence[Exchange], answers: Mapping[int, Any], reject: Reject
) -> Answers:
    """The answers that are tensors by name for every exchange, in client order.

    The others, and clients that gave no answer, go to `reject`. Raises NoValidAnswer if there is
    no usable answer.
    """
    usable, rejected = {}, {}
    for client, answer in sorted(answers.items()):
        problem = _unusable(exchanges, answer)
        if problem is None:
            usable[client] = answer
        else:
            rejected[client] = shortened(problem)
    if not usable:
        raise NoValidAnswer(exchanges[0].name, rejected)
    for client, problem in rejected.items():
        reject(client, f"client {client} is left out of the exchange: {problem}")
    return usable


def _unusable(exchanges: Sequence[Exchange], answer: Any) -> str | None:
    if isinstance(answer, Absent):
        return answer.reason
    if not isinstance(answer, Mapping):
        return f"it sent a {type(answer).__name__}, not answers by name"
    for exchange in exchanges:
        problem = type_problem(answer.get(exchange.name))
        if problem is not None:
            return f"its answer to '{exchange.name}': {problem}"
    return None


def pool_answers(
    exchanges: Sequence[Exchange], answers: Answers, key: Key, reject: Reject
) -> dict[str, Params]:
    """The pooled valid answers to each exchange, by its name."""
    pooled = {}
    for exchange in exchanges:
        of_exchange = {client: answer[exchange.name] for client, answer in answers.items()}
        valid = valid_answers(exchange, of_exchange, reject)
        pooled[exchange.name] = exchange.server(valid, key.fold(exchange.name))
    return pooled


def valid_answers(
    exchange: Exchange, answers: Mapping[int, Params], reject: Reject
) -> list[Params]:
    """The answers that can be pooled, in client order; the others go to `reject`.

    An answer is valid if it has the names, types and shapes of most answers, is finite, and passes
    the exchange's own check. Raises NoValidAnswer if none is valid.
    """
    forms = {client: _form(answer) for client, answer in answers.items()}
    usual = Counter(forms.values()).most_common(1)[0][0]
    rejected: dict[int, str] = {}
    for client, answer in answers.items():
        problem = _answer_problem(exchange, client, answer, forms[client] == usual)
        if problem is not None:
            rejected[client] = problem
    if len(rejected) == len(answers):
        raise NoValidAnswer(exchange.name, rejected)
    for client, problem in rejected.items():
        what = f"the answer of client {client} to the exchange '{exchange.name}'"
        reject(client, f"{what} is left out: {problem}")
    return [answer for client, answer in answers.items() if client not in rejected]


def _form(answer: Params) -> tuple[Any, ...]:
    """Names, types and shapes of the tensors; the number of rows may differ between clients."""
    return tuple(
        sorted((name, str(t.dtype), t.dim(), tuple(t.shape[1:])) for name, t in answer.items())
    )


def _answer_problem(
    exchange: Exchange, client: int, answer: Params, has_usual_form: bool
) -> str | None:
    if not has_usual_form:
        form = list(_form(answer))
        return f"its tensors {form} differ from most answers in names, types or shapes"
    if (name := first_not_finite(answer)) is not None:
        return f"tensor '{name}' is not finite"
    return exchange.check(client, answer)


def _total_bytes(answers: Answers) -> int:
    return sum(nbytes(params) for answer in answers.values() for params in answer.values())


# ------------------------------------------------------------------ in every round


@dataclass(frozen=True)
class Traffic:
    """Bytes that exchanges add to a round.

    names: entries of ServerState.shared whose download is counted here, not in every round.
    """

    up: int = 0
    down: int = 0
    names: frozenset[str] = frozenset()

    def plus(self, other: Traffic) -> Traffic:
        """The sum of both."""
        return Traffic(self.up + other.up, self.down + other.down, self.names | other.names)


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
    return ExchangeResult(shared, Traffic(_total_bytes(answers), down), rejected)


def training_broadcast(state: ServerState, result: ExchangeResult) -> Broadcast:
    """What is sent to the clients that train."""
    return Broadcast("train", state.round, state.params, {**state.shared, **result.shared})


def count_traffic(
    federation: Federation, state: ServerState, chosen: Sequence[int]
) -> tuple[dict[str, Memory], Traffic]:
    """The ledger after a round with these clients, and the bytes to count in it."""
    if MEMORY_NAME not in state.memory:
        return {}, Traffic()
    ledger = state.memory[MEMORY_NAME][LEDGER]
    names = frozenset(e.name for e in first_exchanges(federation))
    size = sum(nbytes(state.shared[name]) for name in names)
    has_downloaded, asked = ledger["told"].clone(), torch.tensor(list(chosen))
    downloads = int((has_downloaded[asked] == 0).sum())
    has_downloaded[asked] = 1
    after = {**ledger, "up": torch.zeros_like(ledger["up"]), "told": has_downloaded}
    return {MEMORY_NAME: {LEDGER: after}}, Traffic(int(ledger["up"]), size * downloads, names)
