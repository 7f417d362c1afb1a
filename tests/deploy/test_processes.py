"""Processes of a deployment, with small Python programs in the place of Flower's."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.deploy import supervise
from fedloom.deploy.processes import (
    Process,
    check_port,
    environment,
    free_port,
    last_lines,
    stop_all,
)
from fedloom.deploy.supervise import Supervisor, until_stopped

pytestmark = pytest.mark.posix

SLEEP = "import time; time.sleep(100)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
print(child.pid, flush=True)
time.sleep(100)
"""
OTHER_SESSION = PARENT.replace('time.sleep(100)"])', 'time.sleep(100)"], start_new_session=True)')
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(100)
"""


def start(folder: Path, code: str, name: str = "the program") -> Process:
    log = folder / "logs" / f"{len(list(folder.rglob('*.log')))}.log"
    return Process(name, [sys.executable, "-c", code], os.environ, log)


def wait_for(ready, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    with start(tmp_path, PARENT) as process:
        wait_for(lambda: process.log.read_text())
        child = int(process.log.read_text())
        assert is_alive(child) and process.exit_code is None
    assert process.exit_code is not None
    wait_for(lambda: not is_alive(child))


def test_children_in_other_sessions_end_even_if_their_parent_has_died(tmp_path: Path) -> None:
    process = start(tmp_path, OTHER_SESSION)
    wait_for(lambda: process.log.read_text())
    child = int(process.log.read_text())
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: process.exit_code is not None)
    assert is_alive(child)
    process.stop()
    wait_for(lambda: not is_alive(child))


def test_a_program_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, STUBBORN)
    wait_for(lambda: "ready" in process.log.read_text())
    process.stop(grace=0.2)
    assert process.exit_code == -signal.SIGKILL


def test_several_are_stopped_at_the_same_time(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("fedloom.deploy.processes.GRACE", 1.0)
    group = [start(tmp_path, STUBBORN) for _ in range(3)]
    wait_for(lambda: all("ready" in process.log.read_text() for process in group))
    began = time.monotonic()
    stop_all(group)
    assert time.monotonic() - began < 2.5
    assert all(process.exit_code == -signal.SIGKILL for process in group)


def test_one_that_ends_too_early_is_reported_with_its_log(tmp_path: Path) -> None:
    process = start(tmp_path, "print('out of tea'); raise SystemExit(3)", "the kettle")
    with pytest.raises(
        RunError, match=r"(?s)the kettle ended with exit code 3; its log .*out of tea"
    ):
        process.wait_until(lambda: False, 20, "did not boil")
    slow = start(tmp_path, SLEEP, "the kettle")
    with slow, pytest.raises(RunError, match="the kettle did not boil in 0 s"):
        slow.wait_until(lambda: False, 0.2, "did not boil")


def test_logs_are_for_their_owner_only(tmp_path: Path) -> None:
    with start(tmp_path, SLEEP) as process:
        assert process.log.stat().st_mode & 0o777 == 0o600
        assert process.log.parent.stat().st_mode & 0o777 == 0o700


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == ""
    log.write_text("".join(f"line {n}\n" for n in range(10_000)))
    assert last_lines(log, 2) == "  line 9998\n  line 9999"


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    check_port("127.0.0.1", free_port())
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port}: address already"):
            check_port("127.0.0.1", port)


def test_flower_is_silent_offline_and_has_its_own_folder(tmp_path: Path) -> None:
    settings = environment(tmp_path / "flower", {"MORE": "1"})
    assert settings["FLWR_HOME"] == str(tmp_path / "flower")
    assert settings["FLWR_TELEMETRY_ENABLED"] == "0" and settings["MORE"] == "1"
    assert settings["PATH"].startswith(str(Path(sys.executable).parent) + os.pathsep)


# ------------------------------------------------------------------ supervision


def test_what_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "POLL_SECONDS", 0.02)
    said: list[str] = []
    supervisor = Supervisor({"program": lambda: start(tmp_path, SLEEP)}, said.append)
    supervisor.pauses["program"] = 0.1
    with supervisor:
        first = supervisor.running["program"]
        os.kill(first.pid, signal.SIGKILL)
        wait_for(lambda: first.exit_code is not None)
        until = time.monotonic() + 20
        supervisor.watch(
            lambda: (
                time.monotonic() > until or supervisor.running.get("program", first) is not first
            )
        )
        second = supervisor.running["program"]
        assert second is not first and second.exit_code is None
        assert supervisor.pauses["program"] == 0.2  # the next pause is longer
    assert second.exit_code is not None
    assert len(said) == 1 and said[0].startswith("the program ended with exit code -9 (log: ")


def test_a_restart_that_fails_is_tried_again(tmp_path: Path) -> None:
    attempts: list[Process] = []

    def begin() -> Process:
        if len(attempts) == 1:
            attempts.append(attempts[0])
            raise RunError("the program did not get ready")
        attempts.append(start(tmp_path, SLEEP))
        return attempts[-1]

    said: list[str] = []
    with Supervisor({"program": begin}, said.append) as supervisor:
        supervisor.pauses["program"] = 0.01
        os.kill(attempts[0].pid, signal.SIGKILL)
        wait_for(lambda: attempts[0].exit_code is not None)
        until = time.monotonic() + 20
        supervisor.watch(lambda: len(attempts) == 3 or time.monotonic() > until)
        assert supervisor.running["program"] is attempts[2]
    assert said[1].startswith("the program did not get ready; it is started again in")


def test_what_cannot_run_is_not_started_again(tmp_path: Path) -> None:
    starts = {
        "other": lambda: start(tmp_path, SLEEP),
        "program": lambda: start(tmp_path, "raise SystemExit(1)"),
    }
    supervisor = Supervisor(starts, print, lambda process: RunError("the key is not known"))
    with pytest.raises(RunError, match="the key is not known"), supervisor:
        other = supervisor.running["other"]
        supervisor.watch(lambda: False)
    assert other.exit_code is not None  # the rest is ended, too


def test_a_failed_start_ends_what_was_started(tmp_path: Path) -> None:
    started: list[Process] = []

    def first() -> Process:
        started.append(start(tmp_path, SLEEP))
        return started[0]

    def second() -> Process:
        raise UserError("no")

    with pytest.raises(UserError), Supervisor({"first": first, "second": second}, print):
        pass
    assert started[0].exit_code is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_watch(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with until_stopped() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        wait_for(stopped)
    assert signal.getsignal(number) is before
