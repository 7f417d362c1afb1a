"""Where clients' memories are kept between rounds.

In a simulation the server's process carries them: they go out with the task and come back with the
reply (`CarriedMemories`). In a deployment they stay with the client's site, and the server carries
a receipt in their place (deploy/site/memory.py). Nothing else in a round depends on which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedloom.core.params import Params

Memories = Mapping[str, Params]  # by slot


class MemoryKeeper(Protocol):
    """Keeps the memories of clients between rounds."""

    def recall(self, client: int, carried: Memories) -> Memories:
        """The memories of a client. carried: what the server carries for it."""
        ...

    def keep(self, client: int, round: int, memories: Memories) -> Memories:
        """Keep a client's memories after a round, and return what the server is to carry for it."""
        ...


class CarriedMemories:
    """The server carries the memories themselves."""

    def recall(self, client: int, carried: Memories) -> Memories:
        return carried

    def keep(self, client: int, round: int, memories: Memories) -> Memories:
        return memories
