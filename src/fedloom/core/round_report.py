"""The report of a finished round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedloom.core.errors import RunError
from fedloom.core.exchange_answers import NoValidAnswer
from fedloom.core.exchange_ledger import Traffic
from fedloom.core.params import nbytes
from fedloom.core.server import Reply
from fedloom.core.state import ServerState
from fedloom.core.upload_spool import upload_bytes


@dataclass(frozen=True)
class RoundReport:
    """Participants, rejected clients with reasons, the mean training loss, and the cost.

    skipped: why the model stayed as it was; None for a round that counts. loss: None if the round
    was skipped, or if a client's loss is not finite.
    """

    round: int
    clients: tuple[int, ...]
    rejected: dict[int, str]
    loss: float | None
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    skipped: str | None = None


class TooManySkipped(RunError):
    """More rounds in a row were skipped than guard.max_skipped. client: one to look at, if any."""

    def __init__(self, skipped: int, allowed: int, report: RoundReport) -> None:
        self.client = next(iter(report.rejected), None)
        rounds = "a round was" if skipped == 1 else f"{skipped} rounds in a row were"
        super().__init__(
            f"{rounds} skipped, and guard.max_skipped={allowed}; "
            f"round {report.round + 1}: {report.skipped}"
        )


def round_report(
    state: ServerState,
    sent: int,
    chosen: Sequence[int],
    valid: Sequence[Reply],
    rejected: dict[int, str],
    skipped: str | None,
    seconds: float,
    traffic: Traffic,
) -> RoundReport:
    """The report of the round that started from this state.

    sent: bytes of the weights that a client downloads.

    Every chosen client downloads the weights and everything shared with them, except the pooled
    answers of exchanges: `traffic` counts those, because a client downloads them only once.
    """
    down = sent + sum(nbytes(p) for name, p in state.shared.items() if name not in traffic.names)
    return RoundReport(
        round=state.round,
        clients=tuple(chosen),
        rejected=rejected,
        loss=mean_loss(valid) if skipped is None else None,
        steps=sum(r.steps for r in valid),
        bytes_up=traffic.up + sum(upload_bytes(r.uploads) for r in valid),
        bytes_down=traffic.down + down * len(chosen),
        seconds=seconds,
        skipped=skipped,
    )


def skipped_report(round: int, cause: NoValidAnswer, seconds: float) -> RoundReport:
    """The report of a round that ended with its exchanges, before any client was to train."""
    return RoundReport(round, (), dict(cause.rejected), None, 0, 0, 0, seconds, str(cause))


def mean_loss(valid: Sequence[Reply]) -> float | None:
    """Weighted by the clients' samples; None if it is not finite."""
    loss = sum(r.loss * r.samples for r in valid) / sum(r.samples for r in valid)
    return loss if math.isfinite(loss) else None
