"""All that a server knows between two rounds, and the clients' memories. What is not here, a checkpoint does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedloom.core.params import Params
from fedloom.core.server import Memory


@dataclass(frozen=True)
class ServerState:
    """The weights, each stage's memory, what is sent along with the weights, and how many rounds are done."""

    round: int
    params: Params
    memory: Mapping[str, Memory] = field(default_factory=dict)
    shared: Mapping[str, Params] = field(default_factory=dict)

    def tensors(self) -> Params:
        """Everything in one flat dictionary, for one file."""
        flat = {f"params/{n}": t for n, t in self.params.items()}
        flat |= {f"shared/{w}/{n}": t for w, p in self.shared.items() for n, t in p.items()}
        flat |= {
            f"memory/{s}/{w}/{n}": t
            for s, m in self.memory.items()
            for w, p in m.items()
            for n, t in p.items()
        }
        return flat

    @staticmethod
    def from_tensors(round: int, flat: Mapping[str, Tensor]) -> ServerState:
        """The state that `tensors` was taken of."""
        params: Params = {}
        shared: dict[str, Params] = {}
        memory: dict[str, dict[str, Params]] = {}
        for path, t in flat.items():
            room, rest = path.split("/", 1)
            if room == "params":
                params[rest] = t
            elif room == "shared":
                word, name = rest.split("/", 1)
                shared.setdefault(word, {})[name] = t
            else:
                stage, word, name = rest.split("/", 2)
                memory.setdefault(stage, {}).setdefault(word, {})[name] = t
        return ServerState(round, params, memory, shared)


class ClientStore(Protocol):
    """The clients' memories by slot. A slot that is remembered replaces the slot of that name and no other."""

    def recall(self, client: int) -> Mapping[str, Params]: ...

    def remember(self, client: int, memories: Mapping[str, Params]) -> None: ...


class MemoryStore:
    """A client store in memory."""

    def __init__(self) -> None:
        self._mine: dict[int, dict[str, Params]] = {}

    def recall(self, client: int) -> Mapping[str, Params]:
        return dict(self._mine.get(client, {}))

    def remember(self, client: int, memories: Mapping[str, Params]) -> None:
        if memories:
            self._mine.setdefault(client, {}).update(memories)
