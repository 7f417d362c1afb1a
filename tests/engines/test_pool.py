"""The pool gives the bits of the in-process engine: for every method, with one, two and three workers, and when one is killed."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.params import sha256
from fedloom.core.round import begin, rounds
from fedloom.core.state import MemoryStore
from fedloom.engines.inprocess import ClientError
from fedloom.engines.pool import Pool
from fedloom.methods.registry import names
from fedloom.study.assemble import Study, assemble
from fedloom.study.config import load
from fedloom.study.session import run

SMALL = {
    "rounds": 3,
    "seed": 3,
    "model": "resnet8(width=4)",  # batch norm, so that statistics and counters travel too
    "data": {"clients": 60, "partition": "dirichlet(alpha=0.3)", "augment": ["flip", "pad-crop"]},
    "train": {"steps": 2, "batch": 8, "momentum": 0.9, "reset": False},
    "sample": {"per_round": 5},
    "evaluate": {"batch": 250},
}

OWN = '''
from fedloom.core.method import Exchange, Extra, Method, Phase
from fedloom.core.select import norms

def average(job, key):
    x, y = job.data.batch(__import__("torch").arange(len(job.data)))
    return {"x": x.mean(0)}

def pooled(answers, key):
    return {"x": sum(a["x"] for a in answers) / len(answers)}

def blend(x, y, job, key):
    return 0.9 * x + 0.1 * job.shared["mashed"]["x"], y

def everything() -> Method:
    """An exchange, a mix, private norms, a second slot and a finale in one."""
    return Method("everything", (Phase(mix=blend), Phase(slot="personal")), private=norms,
                  prologue=(Exchange("mashed", average, pooled),), finale=(Phase(slot="personal"),), evaluates="personal")

def broken() -> Method:
    def loss(step):
        if step.number == 2:
            raise ArithmeticError("broken on purpose")
        return step.ce
    return Method("broken", (Phase(loss=loss),))
'''


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Pool]]:
    made = {n: Pool(n) for n in (1, 2, 3)}
    yield made
    for pool in made.values():
        pool.close()


def shas(study: Study) -> list[str]:
    """The identity of the weights after every round."""
    state = begin(study.loom, study.model)
    return [sha256(s.params) for s, _ in rounds(study.loom, state, MemoryStore(), study.config.rounds)]


def study_of(method: str, pool: Pool | None = None, **changes: Any) -> Study:
    engine = {"engine": "pool" if pool else "inprocess"}
    return assemble(load({**SMALL, "method": method, **engine, **changes}), pool=pool)


@pytest.mark.parametrize("method", [*names(), "fedprox+fedavgm", "scaffold+fedadam"])
def test_every_round_of_every_method_has_the_same_bits(method: str, pools: dict[int, Pool]) -> None:
    alone = shas(study_of(method))
    assert len(set(alone)) == 3
    for workers, pool in pools.items():
        assert shas(study_of(method, pool)) == alone, f"{workers} workers"


def test_exchange_private_tensors_slots_and_finale_travel_too(pools: dict[int, Pool], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    method = f"{tmp_path / 'own.py'}:everything"
    alone, pooled = run(study_of(method)), run(study_of(method, pools[2]))
    assert {k: v for k, v in pooled.items() if k != "seconds"} == {k: v for k, v in alone.items() if k != "seconds"}


def test_a_killed_worker_changes_nothing(pools: dict[int, Pool]) -> None:
    alone, study, pool = shas(study_of("scaffold")), study_of("scaffold", pools[2]), pools[2]
    turn, real = itertools.count(), pool._next

    def kill_now_and_then(member: Any, *given: Any) -> None:
        real(member, *given)
        if next(turn) % 3 == 1:
            os.kill(member.process.pid, signal.SIGKILL)

    pool._next = kill_now_and_then  # type: ignore[method-assign]
    try:
        assert shas(study) == alone
    finally:
        del pool._next
    assert next(turn) > 15


def test_a_failing_client_is_told_apart_from_a_dead_worker(pools: dict[int, Pool], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    said = []
    for pool in (None, pools[1]):
        with pytest.raises(ClientError, match=r"phase 0, step 2.*broken on purpose") as caught:
            shas(study_of(f"{tmp_path / 'own.py'}:broken", pool))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_closing_a_pool_ends_its_workers() -> None:
    pool = Pool(2)
    pids = [m.process.pid for m in pool.members]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
