"""fedloom, on the engine that `way` names; pool with two workers."""

from __future__ import annotations

import torch

from benchmarks.contestant import study_of
from benchmarks.peers.clock import Clock, Enough, contest
from benchmarks.peers.work import WORK, Work, model
from fedloom.core.round import begin, rounds
from fedloom.core.state import MemoryStore
from fedloom.engines.heap import keep_freed_memory
from fedloom.study.assemble import Study


def play(work: str, way: str, clock: Clock) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as `fedloom run` does
    study = study_of(work, way)
    same(study, work)
    going = rounds(study.loom, begin(study.loom, study.model), MemoryStore(), study.config.rounds)
    try:
        clock.tick()
        for _ in going:
            clock.tick()
    except Enough:
        study.close()


@torch.no_grad()
def same(study: Study, name: str) -> None:
    """Peers must have our work: the same sizes, and a net that gives our numbers with our weights."""
    config, theirs, clients = study.config, model(name), len(study.clients)
    samples, shape = len(study.dataset.train) // clients, tuple(study.dataset.train.x.shape[1:])
    found = Work(clients, samples, config.sample.args["per_round"], config.train.batch, config.train.epochs, shape, config.train.lr)
    if found != WORK[name]:
        raise AssertionError(f"ours: {found}, theirs: {WORK[name]}")
    for copy, weight in zip(theirs.parameters(), study.model.parameters(), strict=True):
        copy.copy_(weight)
    x = torch.linspace(-1, 1, 2 * shape[0] * shape[1] * shape[2]).view(2, *shape)
    torch.testing.assert_close(theirs(x), study.model(x))


if __name__ == "__main__":
    contest(play)
