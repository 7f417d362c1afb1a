"""What the engine needs of a network: which sites are there, push a request, pull the replies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from fedloom.engines.flower.messages import Parts


@dataclass(frozen=True)
class Failure:
    """Why a request has no reply: a phrase about the site, such as "is not connected".

    final: it would fail in the same way if it were sent again.
    """

    reason: str
    final: bool = False


class Transport(Protocol):
    """Carries requests to sites and replies back.

    Messages may be lost, delayed, repeated or damaged; the engine copes with that. A transport
    raises RunError only if no site can be reached any more.
    """

    def connected(self) -> Collection[str]:
        """The names of the sites that can be reached now."""
        ...

    def push(self, site: str, parts: Parts, seconds: float) -> str | Failure:
        """Send a request; the ticket by which its reply is pulled.

        seconds: for how long the reply will be waited for; after that the request may be dropped.
        """
        ...

    def pull(self, tickets: Collection[str]) -> Mapping[str, Parts | Failure]:
        """The replies that have arrived for these tickets, without waiting for the others."""
        ...

    def close(self) -> None: ...
