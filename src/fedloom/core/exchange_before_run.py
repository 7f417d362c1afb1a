"""Exchanges before a run starts or is resumed.

The user is told what will be sent. Then all clients are asked the first exchanges, those that are
not repeated in every round. They are asked again only if clients' data have changed when the run is
resumed. A client downloads the pooled answers once and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedloom.core.exchange_answers import Answers, Reject, pool_answers, usable_answers
from fedloom.core.exchange_ledger import LEDGER, MEMORY_NAME, first_exchanges, new_ledger
from fedloom.core.federation import Federation
from fedloom.core.job import Data
from fedloom.core.method import Exchange
from fedloom.core.params import Params
from fedloom.core.request import Ask, Broadcast, ClientTask
from fedloom.core.server import Memory
from fedloom.core.state import ServerState

Notify = Callable[[str], None]  # shows a message to the user


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


def first_exchange(
    federation: Federation, ask: Ask, params: Params, notify: Notify
) -> tuple[dict[str, Params], dict[str, Memory]]:
    """Ask all clients before round 0: the pooled answers by name, and the server's memory of it."""
    if not first_exchanges(federation):
        return {}, {}
    turns = torch.zeros(len(federation.clients), dtype=torch.int64)
    answers = _ask_by_turn(federation, ask, params, turns, notify)
    pooled = _pool_first(federation, answers, notify)
    return pooled, new_ledger(answers, turns, _checksums(federation.clients))


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
    memory = {**state.memory, **new_ledger(new_answers, turns, checksums)}
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


def _checksums(clients: Sequence[Data]) -> Tensor:
    return torch.tensor([data.checksum() for data in clients])
