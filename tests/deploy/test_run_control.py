"""What the ServerApp and `fedloom deploy run` tell each other through files."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.deploy import submit
from fedloom.deploy.layout import Address, ServerFolder
from fedloom.deploy.provision import for_sites, provision
from fedloom.deploy.run_control import RunControl, RunState
from fedloom.deploy.submit import Follower, check_run_name
from fedloom.settings.config import load


@pytest.fixture
def folder(tmp_path: Path) -> ServerFolder:
    (tmp_path / "server").mkdir()
    facts = 'name = "x"\naddress = "127.0.0.1:1"\nsites = ["a"]\n'
    (tmp_path / "server" / "deployment.toml").write_text(facts)
    return ServerFolder.find(tmp_path)


def test_states_messages_and_stops_are_passed_on(tmp_path: Path) -> None:
    control, reader = RunControl(tmp_path / "c", "run"), RunControl(tmp_path / "c", "run")
    assert reader.read() is None and reader.messages() == ([], 0)
    state = RunState("running", os.getpid(), "abc")
    control.write(state)
    assert reader.read() == state and not state.has_ended
    control.say("first\nline")
    messages, position = reader.messages()
    assert messages == ["first line"]
    control.say("second")
    assert reader.messages(position)[0] == ["second"]
    assert not control.should_stop()
    reader.ask_to_stop()
    assert control.should_stop()
    control.forget_stop()
    assert not control.should_stop()


HOLD = """
import sys, time
from pathlib import Path
from fedloom.deploy.run_control import RunControl, RunState
control = RunControl(Path(sys.argv[1]), "run")
with control.held():
    control.write(RunState("running", 1))
    time.sleep(100)
"""


@pytest.mark.posix
def test_a_killed_process_is_not_alive_even_as_a_zombie(tmp_path: Path) -> None:
    control = RunControl(tmp_path, "run")
    assert not control.is_alive()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)])
    while control.read() is None:
        time.sleep(0.05)
    assert control.is_alive()
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and not waited for
    assert Path(f"/proc/{holder.pid}").exists() and not control.is_alive()
    holder.wait()


def test_a_run_has_one_server_app_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedloom.deploy.run_control.HOLD_SECONDS", 0.1)
    control = RunControl(tmp_path, "run")
    with control.held():
        control.write(RunState("running", os.getpid()))
        assert RunControl(tmp_path, "run").is_alive()
        with pytest.raises(UserError, match="run 'run' is going on already"):
            RunControl(tmp_path, "run").held().__enter__()
    assert not control.is_alive()


def test_half_a_message_is_not_shown(tmp_path: Path) -> None:
    control = RunControl(tmp_path, "run")
    (tmp_path / "run.log").write_bytes(b"whole\nhal")
    messages, position = control.messages()
    assert messages == ["whole"] and position == 6


def test_the_follower_shows_messages_and_returns_the_end(folder: ServerFolder) -> None:
    control, said = submit.control_of(folder, "run"), []
    control.say("of an earlier attempt")
    control.write(RunState("failed", os.getpid(), "earlier", "no", 1))
    follower = Follower(folder, "run", said.append, lambda: None)

    def other_side() -> None:
        with control.held():
            control.write(RunState("waiting", os.getpid(), "ours"))
            control.say("waiting: site 'a' is not connected")
            control.write(RunState("finished", os.getpid(), "ours"))

    thread = threading.Timer(0.2, other_side)
    thread.start()
    assert follower.follow("ours").state == "finished"
    assert said == ["waiting: site 'a' is not connected"]


def test_the_follower_follows_an_attempt_that_comes_right_after_its_own(
    folder: ServerFolder,
) -> None:
    control = submit.control_of(folder, "run")
    for submission in ("ours", "next"):
        control.begin(RunState("waiting", os.getpid(), submission))
        control.write(RunState("finished", os.getpid(), submission))
    assert Follower(folder, "run", print, lambda: None).follow("ours").submission == "next"


def test_a_server_app_that_was_killed_is_reported(folder: ServerFolder) -> None:
    submit.control_of(folder, "run").write(RunState("running", 1, "ours"))
    follower = Follower(folder, "run", print, lambda: None)
    with pytest.raises(RunError, match="the ServerApp was killed, or crashed; the last checkpoint"):
        follower.follow("ours")


def test_a_server_app_that_does_not_start_is_reported(
    folder: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "START_SECONDS", 0.3)
    began = time.monotonic()
    with pytest.raises(RunError, match="the ServerApp did not start in 0 s"):
        Follower(folder, "run", print, lambda: None).follow("ours")
    assert time.monotonic() - began < 5


def test_a_run_without_a_server_says_how_to_start_it(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    provision(tmp_path / "d", for_sites(load({}))[0], ("a",), Address("127.0.0.1", 1))
    folder = ServerFolder.find(tmp_path / "d")
    with pytest.raises(UserError, match=r"does not answer on 127\.0\.0\.1:1; start it on this"):
        submit.submit(folder, "run")


def test_names_of_runs_are_checked() -> None:
    check_run_name("hospitals-2")
    with pytest.raises(UserError, match=r"run '\.\./x' cannot be the name of a folder"):
        check_run_name("../x")


def test_only_success_counts() -> None:
    assert submit._succeeded(json.dumps({"success": True}))
    assert not any(map(submit._succeeded, ("", "null", "{}", '{"success": false}', "[1]")))
