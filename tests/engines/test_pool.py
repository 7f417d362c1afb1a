"""The pool gives the bits of the in-process engine: for every method, with one, two and three workers, and when one is killed."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from fedloom.engines.inprocess import ClientError
from fedloom.engines.pool import Pool
from fedloom.study.session import run
from support.small import EVERY_METHOD, FEW, OWN, shas, study_of


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, Pool]]:
    made = {n: Pool(n) for n in (1, 2, 3)}
    yield made
    for pool in made.values():
        pool.close()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_round_of_every_method_has_the_same_bits(method: str, pools: dict[int, Pool]) -> None:
    alone = shas(study_of(method))
    assert len(set(alone)) == 3
    for workers, pool in pools.items():
        assert shas(study_of(method, pool)) == alone, f"{workers} workers"


def test_exchange_private_tensors_slots_and_finale_travel_too(pools: dict[int, Pool]) -> None:
    alone, pooled = (run(study_of(f"{OWN}:everything", pool, **FEW)) for pool in (None, pools[2]))
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


def test_a_failing_client_is_told_apart_from_a_dead_worker(pools: dict[int, Pool]) -> None:
    said = []
    for pool in (None, pools[1]):
        with pytest.raises(ClientError, match=r"phase 0, step 2.*broken on purpose") as caught:
            shas(study_of(f"{OWN}:broken", pool))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_closing_a_pool_ends_its_workers() -> None:
    pool = Pool(2)
    pids = [m.process.pid for m in pool.members]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
