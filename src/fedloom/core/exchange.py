"""The prologue: every client is asked before round 0, its answers are looked at and pooled, and what was sent is written down.

The ledger lies among the server's memories, and so in every checkpoint:

    up     bytes of answers that no report has counted yet
    told   which clients have the pooled answers
    turn   of each client, the number of the exchange that it answered last
    seal   of each client, a checksum of the data it answered from

So what is exchanged is counted once: on its way up in the report of the next round, on its way down when a client is asked for
the first time. A client keeps it; if it changes, all are sent it anew.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedloom.core.client import Broadcast, Federation, Task
from fedloom.core.errors import RunError
from fedloom.core.job import Data
from fedloom.core.key import Key
from fedloom.core.method import Exchange
from fedloom.core.params import Params, nbytes
from fedloom.core.server import Memory
from fedloom.core.state import ClientStore, ServerState

ROOM, LEDGER = "exchange", "ledger"
CHUNK = 1000  # samples whose checksum is taken at a time

Ask = Callable[[Broadcast, Iterable[Task]], Iterator[tuple[int, Any]]]
Tell = Callable[[str], None]
Refuse = Callable[[int, str], object]  # hears of a client whose answer is left out, and why


def notices(federation: Federation, rounds: int) -> list[str]:
    """What a user has to know before the clients are asked in a run of so many rounds; an error where a limit is broken."""
    return [
        said
        for e in federation.method.prologue
        for said in _notice(e, federation, rounds if e.every_round else 1)
    ]


def _notice(exchange: Exchange, federation: Federation, releases: int) -> list[str]:
    text = exchange.notice([len(data) for data in federation.clients], releases)
    return [f"exchange '{exchange.name}': {text}"] if text else []


def first_exchanges(federation: Federation) -> list[Exchange]:
    """Those that are put before round 0, and again only if data change."""
    return [e for e in federation.method.prologue if not e.every_round]


def first_exchange(
    federation: Federation, ask: Ask, params: Params, tell: Tell
) -> tuple[dict[str, Params], dict[str, Memory]]:
    """The first exchange: the pooled answers by name, and the ledger as the server remembers it."""
    if not first_exchanges(federation):
        return {}, {}
    turns = torch.zeros(len(federation.clients), dtype=torch.int64)
    answers = _answers(federation, ask, params, turns)
    return _first(federation, answers, tell), _ledger(answers, turns, _seals(federation.clients))


def repeat_if_data_changed(
    federation: Federation, ask: Ask, state: ServerState, tell: Tell
) -> ServerState:
    """The state, with a new exchange if the data of clients have changed since the last.

    The others answer as before, from the same key; who has changed draws anew, since noise that is used twice can be taken off.
    """
    if not first_exchanges(federation):
        return state
    old, seals = (
        {n: t.cpu() for n, t in state.memory[ROOM][LEDGER].items()},
        _seals(federation.clients),
    )
    same = len(seals) == len(old["seal"])
    changed = seals != old["seal"] if same else torch.ones_like(seals, dtype=torch.bool)
    if not bool(changed.any()):
        return state
    new = int(old["turn"].max()) + 1
    turns = torch.where(changed, new, old["turn"] if same else new)
    tell(
        f"note: the data of {int(changed.sum())} of {len(seals)} clients have changed since the exchange; it is made again"
    )
    for said in (
        text for e in first_exchanges(federation) for text in _notice(e, federation, new + 1)
    ):
        tell(said)
    answers = _answers(federation, ask, state.params, turns)
    fresh = {c: said for c, said in answers.items() if changed[c]}
    shared = {**state.shared, **_first(federation, answers, tell)}
    return replace(state, shared=shared, memory={**state.memory, **_ledger(fresh, turns, seals)})


def _answers(
    federation: Federation, ask: Ask, params: Params, turns: Tensor
) -> dict[int, dict[str, Params]]:
    """Of every client, in order, the answers under the key of its turn."""
    found: dict[int, dict[str, Params]] = {}
    for turn in sorted(set(turns.tolist())):
        tasks = [Task(client) for client, its in enumerate(turns.tolist()) if its == turn]
        found |= dict(ask(Broadcast("exchange", turn, params), tasks))
    return dict(sorted(found.items()))


def _first(
    federation: Federation, answers: Mapping[int, Mapping[str, Params]], tell: Tell
) -> dict[str, Params]:
    return pool_answers(
        first_exchanges(federation),
        answers,
        federation.key.fold("pool"),
        lambda client, why: tell(f"note: {why}"),
    )


def pool_answers(
    exchanges: Sequence[Exchange],
    answers: Mapping[int, Mapping[str, Params]],
    key: Key,
    refuse: Refuse,
) -> dict[str, Params]:
    """What becomes of the answers to each question."""
    return {
        e.name: e.server(
            valid_answers(e, {c: said[e.name] for c, said in answers.items()}, refuse),
            key.fold(e.name),
        )
        for e in exchanges
    }


def valid_answers(
    exchange: Exchange, answers: Mapping[int, Params], refuse: Refuse
) -> list[Params]:
    """The answers that can be pooled: of the form that most of them have, finite, and sound in the exchange's own eyes."""
    forms = {client: _form(answer) for client, answer in answers.items()}
    usual = Counter(forms.values()).most_common(1)[0][0]
    said = {c: _complaint(exchange, c, a, forms[c] == usual) for c, a in answers.items()}
    refused = {c: why for c, why in said.items() if why is not None}
    if len(refused) == len(answers):
        client, why = next(iter(refused.items()))
        raise RunError(
            f"no answer to the exchange '{exchange.name}' is sound (client {client}: {why}); look at the clients' data"
        )
    for client, why in refused.items():
        refuse(
            client,
            f"the answer of client {client} to the exchange '{exchange.name}' is left out: {why}",
        )
    return [a for c, a in answers.items() if c not in refused]


def _form(answer: Params) -> tuple[Any, ...]:
    """Names, types and shapes; how many rows there are may differ."""
    return tuple(
        sorted((name, str(t.dtype), t.dim(), tuple(t.shape[1:])) for name, t in answer.items())
    )


def _complaint(exchange: Exchange, client: int, answer: Params, usual: bool) -> str | None:
    if not usual:
        return f"its tensors {list(_form(answer))} are not of the names, types and shapes of most answers"
    if odd := [
        n for n, t in answer.items() if t.is_floating_point() and not bool(torch.isfinite(t).all())
    ]:
        return f"tensor '{odd[0]}' is not finite"
    return exchange.check(client, answer)


def _ledger(
    answers: Mapping[int, Mapping[str, Params]], turns: Tensor, seals: Tensor
) -> dict[str, Memory]:
    """A new page: these answers were sent, and nobody has what came of them."""
    up = sum(nbytes(p) for said in answers.values() for p in said.values())
    told = torch.zeros(len(turns), dtype=torch.uint8)
    return {ROOM: {LEDGER: {"up": torch.tensor(up), "told": told, "turn": turns, "seal": seals}}}


def _seals(clients: Sequence[Data]) -> Tensor:
    return torch.tensor([_seal(data) for data in clients])


def _seal(data: Data) -> int:
    """Sees a change, not a forgery."""
    seal = 0
    for first in range(0, len(data), CHUNK):
        for t in data.batch(torch.arange(first, min(first + CHUNK, len(data))), train=False):
            seal = zlib.crc32(
                t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, seal
            )
    return seal


@dataclass(frozen=True)
class Traffic:
    """What the exchange adds to the bytes of a round. names: what it has counted of all that is sent along."""

    up: int = 0
    down: int = 0
    names: frozenset[str] = frozenset()

    def plus(self, other: Traffic) -> Traffic:
        """Both together."""
        return Traffic(self.up + other.up, self.down + other.down, self.names | other.names)


def count_traffic(
    federation: Federation, state: ServerState, chosen: Sequence[int]
) -> tuple[dict[str, Memory], Traffic]:
    """The ledger after a round with these clients, and what is to be counted in it."""
    if ROOM not in state.memory:
        return {}, Traffic()
    ledger = state.memory[ROOM][LEDGER]
    names = frozenset(e.name for e in first_exchanges(federation))
    size = sum(nbytes(state.shared[name]) for name in names)
    told, asked = ledger["told"].clone(), torch.tensor(list(chosen))
    traffic = Traffic(int(ledger["up"]), size * int((told[asked] == 0).sum()), names)
    told[asked] = 1
    return {ROOM: {LEDGER: {**ledger, "up": torch.zeros_like(ledger["up"]), "told": told}}}, traffic


@dataclass(frozen=True)
class ExchangeResult:
    """The pooled answers by name, what they add to the bytes of the round, and whose answer was left out, with the reason."""

    shared: Mapping[str, Params] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    refused: Mapping[int, str] = field(default_factory=dict)


def ask_every_round(
    federation: Federation, ask: Ask, state: ServerState, store: ClientStore, chosen: Sequence[int]
) -> ExchangeResult:
    """What all clients say before the round; chosen: those who will train."""
    questions = [e for e in federation.method.prologue if e.every_round]
    if not questions:
        return ExchangeResult()
    everyone, refused = range(len(federation.clients)), dict[int, str]()
    said = ask(
        Broadcast("exchange every round", state.round, state.params),
        (Task(c, store.recall(c)) for c in everyone),
    )
    answers = dict(sorted(said, key=lambda answer: answer[0]))
    shared = pool_answers(
        questions, answers, federation.key.fold("again", state.round, "pool"), refused.setdefault
    )
    up = sum(nbytes(p) for rooms in answers.values() for p in rooms.values())
    others = len(everyone) - len(chosen)  # for those who train, the report counts the weights
    down = nbytes(state.params) * others + sum(map(nbytes, shared.values())) * len(chosen)
    return ExchangeResult(shared, Traffic(up, down), refused)


def training_broadcast(state: ServerState, news: ExchangeResult) -> Broadcast:
    """What goes to those who train."""
    return Broadcast("train", state.round, state.params, {**state.shared, **news.shared})
