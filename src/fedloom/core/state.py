"""The server's state between rounds and the clients' memories: everything a checkpoint contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedloom.core.params import Params
from fedloom.core.server import Memory


@dataclass(frozen=True)
class ServerState:
    """What the server keeps between two rounds.

    round    number of completed rounds.
    params   the global model.
    memory   each stage's memory, by stage name.
    shared   what is sent to clients along with the weights, by name.
    """

    round: int
    params: Params
    memory: Mapping[str, Memory] = field(default_factory=dict)
    shared: Mapping[str, Params] = field(default_factory=dict)

    def tensors(self) -> Params:
        """All tensors in one flat dictionary, to save in one file."""
        flat = {f"params/{name}": t for name, t in self.params.items()}
        for group, params in self.shared.items():
            flat |= {f"shared/{group}/{name}": t for name, t in params.items()}
        for stage, memory in self.memory.items():
            for group, params in memory.items():
                flat |= {f"memory/{stage}/{group}/{name}": t for name, t in params.items()}
        return flat


class ClientStore(Protocol):
    """The clients' memories by slot. Remembering a slot leaves the others alone."""

    def recall(self, client: int) -> Mapping[str, Params]: ...

    def stage(self, memories: Mapping[str, Params]) -> Mapping[str, Any]:
        """These memories as they wait to be remembered or dropped: large ones not in RAM."""
        ...

    def remember(self, client: int, memories: Mapping[str, Any]) -> None:
        """Replace these slots of the client; the memories as they are, or staged."""
        ...


class MemoryStore:
    """A client store in RAM."""

    def __init__(self) -> None:
        self._memories: dict[int, dict[str, Params]] = {}

    def recall(self, client: int) -> Mapping[str, Params]:
        return dict(self._memories.get(client, {}))

    def stage(self, memories: Mapping[str, Params]) -> Mapping[str, Params]:
        return memories

    def remember(self, client: int, memories: Mapping[str, Params]) -> None:
        if memories:
            self._memories.setdefault(client, {}).update(memories)
