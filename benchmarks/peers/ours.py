"""fedloom, on the engine that `way` names; pool with two workers."""

from __future__ import annotations

import torch

from benchmarks.contestant import study_of
from benchmarks.peers.clock import Clock, Enough, contest
from benchmarks.peers.work import WORK, Work, model
from fedloom.core.round import init_state, rounds
from fedloom.core.state import MemoryStore
from fedloom.engines.malloc import keep_freed_memory
from fedloom.experiment.prepare import PreparedRun


def play(work: str, way: str, clock: Clock) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as `fedloom run` does
    prepared = study_of(work, way)
    same(prepared, work)
    going = rounds(
        prepared.simulation,
        init_state(prepared.simulation, prepared.model),
        MemoryStore(),
        prepared.config.rounds,
    )
    try:
        clock.tick()
        for _ in going:
            clock.tick()
    except Enough:
        prepared.close()


@torch.no_grad()
def same(prepared: PreparedRun, name: str) -> None:
    """Peers must have our work: the same sizes, and a net that gives our numbers with our weights."""
    config, theirs, clients = prepared.config, model(name), len(prepared.clients)
    samples, shape = (
        len(prepared.dataset.train) // clients,
        tuple(prepared.dataset.train.x.shape[1:]),
    )
    found = Work(
        clients,
        samples,
        config.sample.args["per_round"],
        config.train.batch,
        config.train.epochs,
        shape,
        config.train.lr,
    )
    if found != WORK[name]:
        raise AssertionError(f"ours: {found}, theirs: {WORK[name]}")
    for copy, weight in zip(theirs.parameters(), prepared.model.parameters(), strict=True):
        copy.copy_(weight)
    x = torch.linspace(-1, 1, 2 * shape[0] * shape[1] * shape[2]).view(2, *shape)
    torch.testing.assert_close(theirs(x), prepared.model(x))


if __name__ == "__main__":
    contest(play)
