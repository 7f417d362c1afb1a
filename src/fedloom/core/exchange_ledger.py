"""The ledger of the first exchanges, from which each of their bytes is counted once.

The server keeps it in its memory, so it is part of every checkpoint:

    up     bytes of answers that no round report has counted yet
    told   per client, whether it has downloaded the pooled answers
    turn   per client, the number of the exchange that it answered last
    seal   per client, a checksum of the data it answered from

Uploads are counted in the report of the next round, a download in the first round that a client
takes part in. If the pooled answers change, all clients download them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.exchange_answers import Answers, total_bytes
from fedloom.core.federation import Federation
from fedloom.core.method import Exchange
from fedloom.core.params import nbytes
from fedloom.core.server import Memory
from fedloom.core.state import ServerState

MEMORY_NAME, LEDGER = "exchange", "ledger"  # where the ledger is in the server's memory


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


def first_exchanges(federation: Federation) -> list[Exchange]:
    """The exchanges that are asked before round 0."""
    return [e for e in federation.method.prologue if not e.every_round]


def new_ledger(answers: Answers, turns: Tensor, checksums: Tensor) -> dict[str, Memory]:
    """The ledger after these answers were uploaded, before anyone has downloaded the result."""
    ledger = {
        "up": torch.tensor(total_bytes(answers)),
        "told": torch.zeros(len(turns), dtype=torch.uint8),
        "turn": turns,
        "seal": checksums,
    }
    return {MEMORY_NAME: {LEDGER: ledger}}


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
