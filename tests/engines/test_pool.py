"""The pool gives the bits of the in-process engine, for every method, and if workers are killed."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.client_error import ClientError
from fedloom.core.errors import RunError
from fedloom.core.request import Broadcast, ClientTask
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.pool import Pool
from fedloom.experiment.train import train
from support.small_run import EVERY_METHOD, FEW_CLIENTS, USER_METHODS, prepare_small, sha_per_round

pytestmark = pytest.mark.xdist_group("pool")  # so that the pools start once


@pytest.fixture(scope="module")
def pools(fork_server: ForkServer) -> Iterator[dict[int, Pool]]:
    # a test kills the fork server of the second
    made = {1: Pool(1, fork_server), 2: Pool(2), 3: Pool(3, fork_server)}
    yield made
    for pool in made.values():
        pool.close()


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_every_round_of_every_method_has_the_same_bits(method: str, pools: dict[int, Pool]) -> None:
    alone = sha_per_round(prepare_small(method))
    assert len(set(alone)) == 3
    for workers, pool in pools.items():
        assert sha_per_round(prepare_small(method, pool)) == alone, f"{workers} workers"


@pytest.mark.parametrize(
    "train",
    [
        {"optimiser": "adamw", "decay_norms": False, "reset": False},
        {"optimiser": "adam", "amsgrad": True, "reset": False},
        {"momentum": 0.9, "sam": 0.05, "reset": False},
    ],
    ids=["adamw without decay of norms", "amsgrad", "sam"],
)
def test_every_optimiser_has_the_same_bits(train: dict[str, Any], pools: dict[int, Pool]) -> None:
    settings = {"train": {"steps": 2, "batch": 8, **train}}
    alone = sha_per_round(prepare_small("fedavg", **settings))
    assert sha_per_round(prepare_small("fedavg", pools[2], **settings)) == alone


def test_exchange_private_tensors_slots_and_finale_work_too(pools: dict[int, Pool]) -> None:
    alone, pooled = (
        train(prepare_small(f"{USER_METHODS}:everything", pool, **FEW_CLIENTS)).result
        for pool in (None, pools[2])
    )
    assert replace(pooled, seconds=0.0) == replace(alone, seconds=0.0)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # killed before, and not replaced yet
        os.kill(pid, signal.SIGKILL)


def test_a_killed_worker_changes_nothing(pools: dict[int, Pool]) -> None:
    alone, prepared, pool = (
        sha_per_round(prepare_small("scaffold")),
        prepare_small("scaffold", pools[2]),
        pools[2],
    )
    turn, real = itertools.count(), pool._submit_next

    def kill_now_and_then(member: Any, *given: Any) -> None:
        real(member, *given)
        if next(turn) % 3 == 1:
            kill(member.process.pid)

    pool._submit_next = kill_now_and_then  # type: ignore[method-assign]
    try:
        assert sha_per_round(prepared) == alone
    finally:
        del pool._submit_next
    assert next(turn) > 15


def test_a_killed_fork_server_changes_nothing(pools: dict[int, Pool]) -> None:
    """Its workers continue; those that are killed too are replaced by a new fork server."""
    alone, prepared, pool = (
        sha_per_round(prepare_small("feddyn")),
        prepare_small("feddyn", pools[2]),
        pools[2],
    )
    turn, real, killed = itertools.count(), pool._submit_next, set[int]()

    def kill_now_and_then(member: Any, *given: Any) -> None:
        real(member, *given)
        if next(turn) in (1, 8):
            assert pool.fork_server.process is not None and member.process.pid not in killed
            killed.update(both := (pool.fork_server.process.pid, member.process.pid))
            for pid in both:
                kill(pid)

    pool._submit_next = kill_now_and_then  # type: ignore[method-assign]
    try:
        assert sha_per_round(prepared) == alone
    finally:
        del pool._submit_next
    assert len(killed) == 4


def test_a_client_that_kills_every_worker_ends_a_strict_run(
    pools: dict[int, Pool], tmp_path: Path
) -> None:
    lives = tmp_path / "lives"
    lives.write_bytes(b"...")
    with pytest.raises(
        RunError,
        match=r"client \d+ in round 1 \(train\): it killed 3 workers \(exit code -9\); there may",
    ):
        sha_per_round(prepare_small(f"{USER_METHODS}:mortal(lives={lives})", pools[1]))


def test_a_failing_client_is_told_apart_from_a_dead_worker(pools: dict[int, Pool]) -> None:
    said = []
    for pool in (None, pools[1]):
        with pytest.raises(ClientError, match=r"phase 0, step 2.*broken on purpose") as caught:
            sha_per_round(prepare_small(f"{USER_METHODS}:broken", pool))
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_recipe_that_a_worker_cannot_follow_is_an_error_with_its_cause(
    fork_server: ForkServer,
) -> None:
    with closing(Pool(1, fork_server)) as pool:
        pool.start({"build": "nowhere:federation", "layout": {}})
        for _ in range(2):
            with pytest.raises(RunError, match="'nowhere:federation', which is not part of"):
                list(pool.map(Broadcast("train", 0, {}), [ClientTask(0), ClientTask(1)]))


def test_closing_a_pool_ends_its_workers(fork_server: ForkServer) -> None:
    pool = Pool(2, fork_server)
    pids = [w.process.pid for w in pool.workers]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
