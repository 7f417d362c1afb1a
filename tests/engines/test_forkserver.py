"""The fork server: it forks workers, reports their ends, and nothing outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pytest

from fedloom.engines import forkserver as module
from fedloom.engines.arena import Arena
from fedloom.engines.forkserver import ForkedProcess, ForkServer
from fedloom.experiment.prepare import prepare
from fedloom.settings.config import load
from support.small_run import SMALL_CONFIG, sha_per_round


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with closing(ForkServer()) as made:
        yield made


def worker(fork_server: ForkServer) -> tuple[Connection, ForkedProcess]:
    """A worker that has received nothing yet, and the connection to it."""
    ours, theirs = Pipe()
    with theirs, closing(Arena()) as data, closing(Arena()) as broadcast:
        return ours, fork_server.worker([theirs.fileno(), data.fd, broadcast.fd])


def assert_gone(pid: int) -> None:
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_end_when_their_connection_is_closed(fork_server: ForkServer) -> None:
    lines, children = zip(*(worker(fork_server) for _ in range(3)), strict=True)
    pids = [child.pid for child in children]
    assert len({*pids, os.getpid()}) == 4
    for line, child in zip(lines, children, strict=True):
        line.close()
        child.end()
        assert child.code == 0
        assert_gone(child.pid)


def test_ctrl_c_does_not_reach_them(fork_server: ForkServer) -> None:
    line, child = worker(fork_server)
    assert os.getpgid(child.pid) != os.getpgid(0)
    os.kill(child.pid, signal.SIGINT)
    line.close()
    child.end()
    assert child.code == 0


def test_the_exit_code_of_a_killed_worker_is_reported(fork_server: ForkServer) -> None:
    line, child = worker(fork_server)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EOFError):
        line.recv_bytes()
    child.end()
    assert child.code == -signal.SIGKILL


def test_an_unresponsive_worker_is_killed(
    fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.1)
    line, child = worker(fork_server)
    os.kill(child.pid, signal.SIGSTOP)
    line.close()
    child.end()
    assert child.code == -signal.SIGKILL
    assert_gone(child.pid)


def test_workers_survive_a_killed_fork_server_which_is_replaced(
    fork_server: ForkServer,
) -> None:
    line, orphan = worker(fork_server)
    assert orphan.pid and fork_server.process is not None
    before = fork_server.process.pid
    os.kill(before, signal.SIGKILL)
    fork_server.process.wait()
    other_line, other = worker(fork_server)
    assert other.pid != orphan.pid and fork_server.process.pid != before
    assert not line.poll(0), "the orphan is gone too"
    for held, child, code in ((line, orphan, "unknown"), (other_line, other, 0)):
        held.close()
        child.end()
        assert child.code == code


def test_if_the_fork_server_dies_before_the_fork_the_worker_counts_as_dead() -> None:
    with closing(ForkServer()) as young:
        line, child = worker(young)
        assert young.process is not None
        young.process.kill()  # before it has imported anything
        with pytest.raises((EOFError, OSError)):
            line.recv_bytes()
        child.end()
        assert child.code == "unknown"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_it_forks_before_there_is_any_thread() -> None:
    with closing(ForkServer("fedloom.experiment.open_engine")) as whole:
        line, child = worker(whole)
        assert child.pid and whole.process is not None
        assert len(list(Path(f"/proc/{whole.process.pid}/task").iterdir())) == 1
        line.close()
        child.end()


OWNER = """
import os, signal
from fedloom.engines.pool import Pool

pool = Pool(2)
print(*(w.process.pid for w in pool.workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_all_processes_end_when_their_owner_is_killed() -> None:
    """They inherit its stdout, so its end shows that all of them have ended."""
    ended = subprocess.run(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert ended.returncode == -signal.SIGKILL and len(ended.stdout.split()) == 2


def test_pools_that_share_a_fork_server_leave_it_open() -> None:
    with closing(ForkServer("fedloom.experiment.open_engine")) as shared:
        rounds, settings = [], load({**SMALL_CONFIG, "engine": "pool", "workers": 2})
        for _ in range(2):
            with prepare(settings, fork_server=shared) as prepared:
                rounds.append(sha_per_round(prepared))
            assert shared.process is not None and shared.process.poll() is None
        assert rounds[0] == rounds[1]
        process = shared.process
    assert process.poll() is not None
