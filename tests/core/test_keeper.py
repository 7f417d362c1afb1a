"""Memories that stay with the client: the server carries a receipt, and the rounds are the same."""

from dataclasses import replace

import pytest
import torch

from fedloom.core.guard import Guard
from fedloom.core.keeper import Memories
from fedloom.core.params import sha256
from fedloom.core.round import rounds
from fedloom.core.simulation import Simulation, init_state
from fedloom.core.spec import parse
from fedloom.core.state import MemoryStore, ServerState
from fedloom.engines.inprocess import InProcess
from fedloom.methods.registry import build
from support.simulate import initial_model, make_simulation, simulate


class Receipts:
    """Keeps every version of a client's memories, and gives the server its number."""

    def __init__(self) -> None:
        self.versions: dict[int, list[Memories]] = {}

    def recall(self, client: int, carried: Memories) -> Memories:
        if not carried:
            return {}
        return self.versions[client][int(carried["receipt"]["version"])]

    def keep(self, client: int, round: int, memories: Memories) -> Memories:
        kept = self.versions.setdefault(client, [])
        kept.append({**(kept[-1] if kept else {}), **memories})
        return {"receipt": {"version": torch.tensor(len(kept) - 1)}}


def with_receipts(method: str, until: int) -> tuple[ServerState, MemoryStore, Simulation]:
    simulation = make_simulation(build(parse(method)))
    federation = replace(simulation.federation, keeper=Receipts())
    simulation = replace(simulation, federation=federation, engine=InProcess(federation))
    state, store = init_state(simulation, initial_model(federation.build)), MemoryStore()
    for reached, _ in rounds(simulation, state, store, until):
        state = reached
    return state, store, simulation


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "moon", "ditto", "fedrep", "fedavg"])
def test_rounds_do_not_depend_on_who_keeps_the_memories(method: str) -> None:
    carried = simulate(build(parse(method)), until=4)
    state, store, simulation = with_receipts(method, until=4)
    assert sha256(state.params) == sha256(carried.state.params)
    keeper = simulation.federation.keeper
    for client in range(len(simulation.federation.clients)):
        ours, theirs = keeper.recall(client, store.recall(client)), carried.store.recall(client)
        assert set(ours) == set(theirs)
        for slot, memory in theirs.items():
            assert sha256(ours[slot]) == sha256(memory)


def test_the_server_carries_nothing_but_receipts() -> None:
    _, store, _ = with_receipts("scaffold", until=2)
    carried = [store.recall(client) for client in range(8)]
    assert any(carried) and all(set(each) <= {"receipt"} for each in carried)


def test_a_round_that_does_not_count_leaves_the_older_receipt_in_force() -> None:
    state, store, simulation = with_receipts("scaffold", until=3)
    before = {client: dict(store.recall(client)) for client in range(8)}
    lossy = replace(simulation, guard=Guard(min_replies=3, max_norm=1e-12))
    (reached, report), *_ = rounds(lossy, state, store, 4)
    assert report.skipped is not None
    assert {client: dict(store.recall(client)) for client in range(8)} == before
    (again, _), *_ = rounds(simulation, replace(reached, round=3), store, 4)
    straight, *_ = with_receipts("scaffold", until=4)
    assert sha256(again.params) == sha256(straight.params)
