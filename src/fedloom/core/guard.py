"""What becomes of replies that cannot be used, and of rounds without enough of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedloom.core.errors import RunError
from fedloom.core.tensor_checks import NOT_FINITE


@dataclass(frozen=True)
class Guard:
    """Which replies are valid, and what happens to a round with too few of them.

    min_replies   valid replies that a round needs; a round with fewer is skipped.
    max_skipped   rounds in a row that may be skipped; with one more, the run stops.
    max_norm      bound on the norm of an update and of the model, in units of the norm of the
                  initial weights (or of 1, if that is larger).
    timeout       seconds that a client may take; None: no limit.
    strict        stop the run at the first reply that is not valid.
    """

    min_replies: int = 1
    max_skipped: int = 5
    max_norm: float = 1e4
    timeout: float | None = None
    strict: bool = False

    def too_few(self, valid: int, rejected: Mapping[int, str]) -> str | None:
        """Why a round with this many valid replies is skipped; None if they are enough."""
        if valid >= self.min_replies:
            return None
        reasons = _listed(rejected)
        if valid == 0 and all(why.endswith(NOT_FINITE) for why in rejected.values()):
            return (
                f"training diverged: every update contains NaN or Inf ({reasons}); "
                "lower train.lr or set train.clip"
            )
        total = valid + len(rejected)
        needed = f"guard.min_replies={self.min_replies}"
        return f"only {valid} of {total} replies are valid, and {needed} ({reasons})"

    def check_strict(self, round: int, rejected: Mapping[int, str]) -> None:
        """Raise for the first invalid reply, if the guard is strict."""
        for client, why in rejected.items():
            if self.strict:
                raise RunError(
                    f"round {round + 1}: the reply of client {client} is not valid: {why}"
                )


def _listed(rejected: Mapping[int, str], most: int = 3) -> str:
    """The reasons, each with its clients; those with the most clients first."""
    clients: dict[str, list[int]] = {}
    for client, why in rejected.items():
        clients.setdefault(why, []).append(client)
    ranked = sorted(clients.items(), key=lambda item: -len(item[1]))
    shown = [f"{_named(who)}: {why}" for why, who in ranked[:most]]
    more = [f"and {len(ranked) - most} other reasons"] if len(ranked) > most else []
    return "; ".join([*shown, *more])


def _named(clients: Sequence[int], most: int = 5) -> str:
    """
    >>> _named([4]), _named([4, 7]), _named(range(9))
    ('client 4', 'clients 4, 7', 'clients 0, 1, 2, 3, 4, ...')
    """
    numbers = ", ".join([*map(str, clients[:most]), *(["..."] if len(clients) > most else [])])
    return f"client{'s' if len(clients) > 1 else ''} {numbers}"
