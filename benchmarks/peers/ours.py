"""fedloom, on the engine that `way` names; the pool has two workers."""

from __future__ import annotations

import torch

from benchmarks.contestant import prepare_work
from benchmarks.peers.clock import Clock, Enough, contest
from benchmarks.peers.work import WORK, Work, model
from fedloom.core.round import rounds
from fedloom.core.simulation import init_state
from fedloom.core.state import MemoryStore
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import PreparedRun


def run(work: str, way: str, clock: Clock) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as `fedloom run` does
    prepared = prepare_work(work, way)
    check_same_work(prepared, work)
    simulation = prepared.simulation
    state = init_state(simulation, prepared.model)
    try:
        clock.tick()
        for _ in rounds(simulation, state, MemoryStore(), prepared.config.rounds):
            clock.tick()
    except Enough:
        prepared.close()


@torch.no_grad()
def check_same_work(prepared: PreparedRun, name: str) -> None:
    """Check that peers do our work: the same sizes, and the same outputs with the same weights."""
    config, theirs, clients = prepared.config, model(name), len(prepared.clients)
    samples = len(prepared.dataset.train) // clients
    shape = tuple(prepared.dataset.train.x.shape[1:])
    ours = Work(
        clients,
        samples,
        config.sample.args["per_round"],
        config.train.batch,
        config.train.epochs,
        shape,
        config.train.lr,
    )
    if ours != WORK[name]:
        raise AssertionError(f"ours: {ours}, theirs: {WORK[name]}")
    for copy, weight in zip(theirs.parameters(), prepared.model.parameters(), strict=True):
        copy.copy_(weight)
    x = torch.linspace(-1, 1, 2 * shape[0] * shape[1] * shape[2]).view(2, *shape)
    torch.testing.assert_close(theirs(x), prepared.model(x))


if __name__ == "__main__":
    contest(run)
