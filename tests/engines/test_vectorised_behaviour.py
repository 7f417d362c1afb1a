"""The vectorised engine besides its numbers: other work, errors, memory, settings of torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.client_error import ClientError
from fedloom.core.method import Phase
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.server import Reply
from fedloom.core.spec import parse
from fedloom.engines import vectorised
from fedloom.engines.inprocess import InProcess
from fedloom.engines.vectorised import Vectorised, bytes_per_lane
from fedloom.methods.fedavg import fedavg
from fedloom.methods.registry import build
from support.clients import TensorClient, tiny_clients
from support.models import bare
from support.simulate import initial_model
from support.vectorised import (
    CountingEngine,
    NoFallback,
    assert_matches_inprocess,
    linear,
    make_federation,
    run_rounds,
)


def test_other_work_goes_to_the_fallback() -> None:
    federation = make_federation(replace(fedavg(), finale=(Phase(),)))
    counted = CountingEngine(InProcess(federation), [])
    engine = Vectorised(federation, counted)
    assert engine.why_not is None
    sent = Broadcast("personalise", 0, initial_model(bare).state_dict())
    ours, exact = (dict(e.map(sent, [ClientTask(1)]))[1] for e in (engine, InProcess(federation)))
    assert sha256(ours) == sha256(exact)
    engine.close()
    assert counted.works == ["personalise", "close"]


@dataclass(frozen=True)
class Torn(TensorClient):
    """A client whose last sample lacks half its features."""

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        x, y = super().batch(positions)
        return (x[:, :2] if len(self) - 1 in positions else x), y


def test_an_error_names_the_client_as_in_process() -> None:
    clients = tiny_clients((8, 8, 8, 8, 8))
    federation = make_federation(fedavg(), [*clients[:4], Torn(clients[4].x, clients[4].y)])
    said = []
    for engine in (InProcess(federation), Vectorised(federation, InProcess(federation))):
        with pytest.raises(ClientError) as caught:
            run_rounds(federation, engine, strict=True)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert said[0].startswith("client 4 failed in round 1")


def test_replies_are_not_overwritten_by_later_clients() -> None:
    federation = make_federation(build(parse("scaffold")))
    engine = Vectorised(federation, NoFallback(), lanes=4)
    sent = Broadcast("train", 0, initial_model(bare).state_dict())
    replies: list[Reply] = [
        reply for _, reply in engine.map(sent, [ClientTask(c) for c in range(4)])
    ]
    before = [sha256(p) for r in replies for p in (*r.uploads.values(), *r.memories.values())]
    list(engine.map(sent, [ClientTask(c) for c in range(4, 8)]))
    assert [
        sha256(p) for r in replies for p in (*r.uploads.values(), *r.memories.values())
    ] == before


def test_clients_are_fetched_a_chunk_at_a_time() -> None:
    """Their memories are in a store that may be larger than this machine's memory."""
    federation, fetched = make_federation(fedavg()), list[int]()

    def tasks() -> Iterator[ClientTask]:
        for c in range(8):
            fetched.append(c)
            yield ClientTask(c)

    replies = Vectorised(federation, NoFallback(), lanes=3).map(
        Broadcast("train", 0, initial_model(bare).state_dict()), tasks()
    )
    next(replies)
    assert fetched == [0, 1, 2]


def test_the_number_of_lanes_is_limited_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 sets of 21 weights, and 4 rows of 6 features that a linear layer saves; 8 bytes each.

    The softmax belongs to the loss.
    """
    federation = make_federation(fedavg(), build=linear)
    lanes = Vectorised(federation, NoFallback()).vmap_round
    assert lanes is not None
    assert bytes_per_lane(lanes, linear()) == 8 * (4 * 21 + 4 * 6)
    monkeypatch.setattr(vectorised, "MEMORY_BYTES", 3 * 864 + 1)
    assert Vectorised(federation, NoFallback()).width == 3
    assert Vectorised(federation, NoFallback(), lanes=2).width == 2
    assert_matches_inprocess(federation)
    monkeypatch.setattr(vectorised, "MEMORY_BYTES", 1)
    assert Vectorised(federation, NoFallback()).width == 1
    assert_matches_inprocess(federation)


def test_global_settings_of_torch_are_restored() -> None:
    seen: list[tuple[int, bool]] = []

    class Watches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((torch.get_num_threads(), torch.backends.mkldnn.enabled))
            return x

    torch.set_num_threads(2)
    before = torch.get_rng_state()
    federation = make_federation(
        fedavg(), build=lambda: Chain({"watch": Watches(), **linear()._modules}).double()
    )
    engine = Vectorised(federation, NoFallback())
    seen.clear()
    run_rounds(federation, engine, 1)
    assert set(seen) == {(1, False)}
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (2, True)
    assert torch.equal(torch.get_rng_state(), before)
