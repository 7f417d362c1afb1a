"""Clients that fail, hang or are slow: left out of the round on every engine, and the run goes on.

The same on Ray: tests/engines/test_ray.py. At full length: tests/trust/faults.py.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.server import Absent, Reply
from fedloom.core.simulation import init_state
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.inprocess import InProcess, OutOfTime, time_limit
from fedloom.engines.pool import Pool
from support.small_run import USER_METHODS, prepare_small, sha_per_round
from trust.faults import run


@pytest.fixture(scope="module")
def pool(fork_server: ForkServer) -> Iterator[Pool]:
    made = Pool(2, fork_server)
    yield made
    made.close()


@pytest.mark.parametrize("engine", ["inprocess", "pool"])
@pytest.mark.parametrize("fault", ["dropped", "raises", "NaN", "1e30", "claims 1e8 samples"])
def test_a_run_completes_and_names_every_fault(
    fault: str, engine: str, fork_server: ForkServer
) -> None:
    outcome = run(fault, "p = 0.3", engine, 8, timeout=3600, fork_server=fork_server)
    assert outcome.problems == ()
    assert outcome.hit == outcome.rejected > 5


@pytest.mark.parametrize(("fault", "engine"), [("slow", "inprocess"), ("slow", "pool"),
                                               ("hung", "pool")])  # fmt: skip
def test_a_client_has_a_time_limit(fault: str, engine: str, fork_server: ForkServer) -> None:
    outcome = run(fault, "6 of 20", engine, 1, timeout=3.0, fork_server=fork_server)
    assert outcome.problems == ()
    assert outcome.hit == outcome.rejected > 0


def test_a_worker_stopped_from_outside_changes_nothing(pool: Pool) -> None:
    """It is replaced, and its client runs again."""
    alone = sha_per_round(prepare_small("scaffold"))
    prepared = prepare_small("scaffold", pool, guard={"timeout": 4.0})
    victim, real, stopped = pool.workers[0].process.pid, pool._submit_next, list[int]()

    def stop_once(worker: Any, *given: Any) -> None:
        real(worker, *given)
        if worker.process.pid == victim and worker.tasks and worker.is_ready and not stopped:
            stopped.append(victim)
            os.kill(victim, signal.SIGSTOP)

    pool._submit_next = stop_once  # type: ignore[method-assign]
    try:
        assert sha_per_round(prepared) == alone
    finally:
        del pool._submit_next
    assert stopped and victim not in [worker.process.pid for worker in pool.workers]
    with pytest.raises(ProcessLookupError):
        os.kill(victim, 0)


def test_a_client_that_kills_every_worker_is_left_out(pool: Pool, tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    lives.write_bytes(b"...")
    method, one = f"{USER_METHODS}:mortal(lives={lives})", {"sample": {"per_round": 1}}
    prepared = prepare_small(method, pool, **one, guard={"strict": False})
    sent = Broadcast("train", 0, init_state(prepared.simulation, prepared.model).params)
    answers = dict(pool.map(sent, [ClientTask(3), ClientTask(4), ClientTask(5)]))
    absent = [answer for answer in answers.values() if isinstance(answer, Absent)]
    assert answers.keys() == {3, 4, 5} and len(absent) <= 1
    assert all("it killed 3 workers (exit code -9)" in a.reason for a in absent)
    assert all(isinstance(answers[c], Reply) for c in answers if answers[c] not in absent)


def test_answers_left_unread_by_a_hung_worker_are_given_up(pool: Pool) -> None:
    prepared = prepare_small("fedavg", pool)
    sent = Broadcast(
        "train", 0, init_state(prepared.simulation, prepared.model).params, timeout=3.0
    )
    answers = pool.map(sent, [ClientTask(c) for c in range(60)])
    while not all(worker.is_ready for worker in pool.workers):
        next(answers)
    for worker in pool.workers:
        os.kill(worker.process.pid, signal.SIGSTOP)
    started = time.monotonic()
    assert {c for c, _ in pool.map(sent, [ClientTask(c) for c in range(8, 11)])} == {8, 9, 10}
    assert time.monotonic() - started < 60


def test_a_failed_client_leaves_no_trace_in_the_next(pool: Pool) -> None:
    prepared = prepare_small("fedavg")
    sent = Broadcast("train", 0, init_state(prepared.simulation, prepared.model).params)
    engine = InProcess(prepared.simulation.federation)
    ((_, alone),) = engine.map(sent, [ClientTask(7)])
    real = engine.federation.clients

    class Broken:
        def __getitem__(self, client: int) -> Any:
            return None if client == 6 else real[client]

    object.__setattr__(engine.federation, "clients", Broken())
    (_, absent), (_, after) = engine.map(sent, [ClientTask(6), ClientTask(7)])
    assert isinstance(absent, Absent) and "it failed in phase 0, step 0" in absent.reason
    assert all((after.uploads["model"][n] == t).all() for n, t in alone.uploads["model"].items())


def test_the_time_limit_interrupts_and_restores_the_handler() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(OutOfTime), time_limit(0.05):
        time.sleep(10)
    with time_limit(0.05):
        pass
    time.sleep(0.1)
    assert signal.getsignal(signal.SIGALRM) is before


def test_outside_the_main_thread_there_is_no_time_limit() -> None:
    done = []

    def work() -> None:
        with time_limit(0.01):
            time.sleep(0.1)
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
