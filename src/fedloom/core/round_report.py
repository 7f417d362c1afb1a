"""The report of a finished round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.core.exchange import Traffic
from fedloom.core.params import nbytes
from fedloom.core.server import Reply
from fedloom.core.state import ServerState


@dataclass(frozen=True)
class RoundReport:
    """Participants, rejected clients with reasons, the mean training loss, and the cost."""

    round: int
    clients: tuple[int, ...]
    rejected: dict[int, str]
    loss: float
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float


def round_report(
    state: ServerState,
    chosen: Sequence[int],
    valid: Sequence[Reply],
    rejected: dict[int, str],
    seconds: float,
    traffic: Traffic,
) -> RoundReport:
    """The report of the round that started from this state.

    Every chosen client downloads the weights and everything shared with them, except the pooled
    answers of exchanges: `traffic` counts those, because a client downloads them only once.
    """
    down = nbytes(state.params)
    down += sum(nbytes(p) for name, p in state.shared.items() if name not in traffic.names)
    return RoundReport(
        round=state.round,
        clients=tuple(chosen),
        rejected=rejected,
        loss=sum(r.loss * r.samples for r in valid) / sum(r.samples for r in valid),
        steps=sum(r.steps for r in valid),
        bytes_up=traffic.up + sum(nbytes(p) for r in valid for p in r.uploads.values()),
        bytes_down=traffic.down + down * len(chosen),
        seconds=seconds,
    )
