"""What there is to say of a round once it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.core.exchange import Traffic
from fedloom.core.params import nbytes
from fedloom.core.server import Reply
from fedloom.core.state import ServerState


@dataclass(frozen=True)
class RoundReport:
    """Who took part, who was refused and why, the mean training loss, and what it cost."""

    round: int
    clients: tuple[int, ...]
    refused: dict[int, str]
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float


def round_report(
    state: ServerState,
    chosen: Sequence[int],
    sound: Sequence[Reply],
    refused: dict[int, str],
    seconds: float,
    traffic: Traffic,
) -> RoundReport:
    """The report of the round that began with this state.

    Weights, and what changes with them, go down to each client each round; what was exchanged goes as its bill says.
    """
    down = nbytes(state.params) + sum(
        nbytes(p) for name, p in state.shared.items() if name not in traffic.names
    )
    return RoundReport(
        round=state.round,
        clients=tuple(chosen),
        refused=refused,
        loss=sum(r.loss * r.samples for r in sound) / sum(r.samples for r in sound),
        steps=sum(r.steps for r in sound),
        bytes_up=traffic.up + sum(nbytes(p) for r in sound for p in r.uploads.values()),
        bytes_down=traffic.down + down * len(chosen),
        seconds=seconds,
    )
