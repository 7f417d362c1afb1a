"""Runs that Ctrl-C, a failing client or NaNs stop: the messages, and the last round is safe."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli import odd_methods
from cli.talk import TINY, Said, fedloom, lines, run, saved_rounds

ROUNDS = 4


@pytest.fixture(autouse=True)
def odd(desk: Path) -> None:
    """The odd methods are in the working directory, under a path that needs no quotes."""
    shutil.copy(odd_methods.__file__, desk)


@contextmanager
def process(
    *words: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> Iterator["subprocess.Popen[str]"]:
    """A real process whose every training step takes this many seconds."""
    with monkeypatch.context() as patch:
        patch.setenv(odd_methods.PAUSE, str(pause))
        command = [sys.executable, "-m", "fedloom", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            yield running
            running.kill()


def read_until(running: "subprocess.Popen[str]", words: str) -> None:
    """Read stderr up to a line with these words."""
    assert running.stderr is not None
    seen: list[str] = []
    for line in running.stderr:
        seen.append(line)
        if words in line:
            return
    raise AssertionError(f"it never said '{words}' but: {''.join(seen)}")


def follow_advice(said: str) -> Said:
    """Follow the advice to resume, to the letter."""
    command = re.search(r"fedloom (resume \S+( --trust)?)", said)
    assert command, said
    return fedloom(*shlex.split(command[1]), "--json")


def slow_run(out: str) -> list[str]:
    return ["run", *TINY, "--method", "odd_methods.py:slow", "--rounds", str(ROUNDS), "--out", out]


def test_one_interrupt_finishes_the_round(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fedloom(*slow_run("whole"), "--json").json
    with process(*slow_run("stopped"), pause=0.1, monkeypatch=monkeypatch) as running:
        read_until(running, "dawdling in round 1")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and out == "", err
    assert (
        "finishing this round" in err
        and "stopped after round 2 of 4; continue with: fedloom resume stopped --trust" in err
    )
    assert saved_rounds(desk / "stopped") == [1, 2] and len(lines(desk / "stopped")) == 2
    assert follow_advice(err).json["weights_sha256"] == whole["weights_sha256"]
    assert lines(desk / "stopped") == lines(desk / "whole")


def test_two_interrupts_drop_the_round(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fedloom(*slow_run("whole"), "--json").json
    with process(*slow_run("dropped"), pause=0.3, monkeypatch=monkeypatch) as running:
        read_until(running, "dawdling in round 1")
        running.send_signal(signal.SIGINT)
        read_until(running, "press Ctrl-C again to drop it")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and out == "" and "Traceback" not in err, err
    assert "stopped; saved up to round 1; continue with: fedloom resume dropped --trust" in err
    assert saved_rounds(desk / "dropped") == [1]
    assert fedloom("resume", "dropped", "--json").json["weights_sha256"] == whole["weights_sha256"]


def test_a_run_that_is_dropped_in_its_first_round_says_that_nothing_is_saved(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(*slow_run("early"), pause=0.3, monkeypatch=monkeypatch) as running:
        read_until(running, "dawdling in round 0")
        running.send_signal(signal.SIGINT)
        read_until(running, "press Ctrl-C again to drop it")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and out == "" and "Traceback" not in err, err
    assert "stopped; no round is saved yet; continue with: fedloom resume early --trust" in err
    assert saved_rounds(desk / "early") == []
    assert follow_advice(err).json["rounds"] == ROUNDS


def test_a_run_that_is_stopped_before_it_has_a_folder_says_so(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedloom.experiment.execute.prepare", stopped)
    said = fedloom("run", *TINY, "--out", "never", code=130)
    assert "stopped before the run began; start again with the same command" in said.flat


def test_an_interrupted_comparison_names_the_way_on(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", *TINY, "--methods", "fedavg,odd_methods.py:slow", "--rounds", "2"]
    with process(*words, pause=0.1, monkeypatch=monkeypatch) as running:
        read_until(running, "dawdling in round 0")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and out == "", err
    assert "finished rounds are saved. Continue all runs with the same command." in err
    assert "1 of 2 runs to do" in fedloom(*words).err


def test_an_interrupt_in_the_last_round_of_a_run_stops_those_after_it(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", *TINY, "--methods", "odd_methods.py:slow,fedavg", "--rounds", "2"]
    with process(*words, pause=0.1, monkeypatch=monkeypatch) as running:
        read_until(running, "dawdling in round 1")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130 and out == "", err
    assert "Continue all runs with the same command." in err
    assert "1 of 2 runs to do" in fedloom(*words).err


def test_a_client_that_fails_is_named_and_can_be_replayed(desk: Path) -> None:
    """People count rounds from 1: after `round 1/20` comes a failure in round 2."""
    words = ("--method", "odd_methods.py:stumbling", "--strict", "--out", "fell")
    said = fedloom("run", *TINY, *words, code=1)
    where = (
        r"client (\d) failed in round 2, phase 0, step 2, batch shapes .*10, 1, 8, 8.*: "
        "ArithmeticError: stumbled over a stone"
    )
    failed = re.search(where, said.flat)
    assert failed and saved_rounds(desk / "fell") == [1], said.err
    command = re.search(
        r"replay only this client: fedloom (resume fell --client (\d) --trust --debug)", said.err
    )
    assert command and command[2] == failed[1], said.err
    replayed = fedloom(*shlex.split(command[1]), code=1)
    assert (
        "Traceback" in replayed.err
        and "odd_methods.py" in replayed.err
        and "raise ArithmeticError" in replayed.err
    )
    assert f"client {failed[1]} failed in round 2, phase 0, step 2" in replayed.flat
    assert saved_rounds(desk / "fell") == [1]


def test_a_client_that_does_not_fail_can_be_replayed_too(desk: Path) -> None:
    run(desk / "sound", "--set", "checkpoint_every=2", rounds=2)
    before = {p: p.read_bytes() for p in desk.rglob("*") if p.is_file() and p.name != "lock"}
    answer = fedloom("resume", "sound", "--client", 4, "--json").json
    assert answer["client"] == 4 and answer["problem"] is None and answer["steps"] > 0
    assert {p: p.read_bytes() for p in before} == before


def test_a_client_that_sends_nan_is_rejected_and_named(desk: Path) -> None:
    run(desk / "healthy", rounds=ROUNDS)
    ill = lines(desk / "healthy")[1]["participants"][0]
    result = run(desk / "ill", "--method", f"odd_methods.py:poisoned(client={ill})", rounds=ROUNDS)
    met = [line["rejected"] for line in lines(desk / "ill")]
    asked = [ill in line["participants"] for line in lines(desk / "healthy")]
    assert [list(m) for m in met] == [[str(ill)] if there else [] for there in asked]
    assert "upload 'model': tensor 'layer1.fc.weight' is not finite" in met[1][str(ill)]
    assert result["rejected"] == sum(asked) and result["test_loss"] < 10


def test_clients_that_fail_do_not_stop_a_run(desk: Path) -> None:
    words = ("--method", "odd_methods.py:stumbling", "--rounds", ROUNDS, "--out", "on", "--json")
    said = fedloom("run", *TINY, *words)
    assert said.json["skipped"] == 1 and said.json["rejected"] == 3
    skipped = [line.get("skipped") for line in lines(desk / "on")]
    assert [why is None for why in skipped] == [True, False, *[True] * (ROUNDS - 2)]
    for why in lines(desk / "on")[1]["rejected"].values():
        assert why.startswith("it failed in phase 0, step 2") and "stumbled over a stone" in why
    assert lines(desk / "on")[1]["train_loss"] is None
    assert "note: round 2 is skipped: only 0 of 3 replies are valid" in said.flat


def test_rounds_without_a_valid_reply_stop_the_run_and_a_resumed_one_goes_on(desk: Path) -> None:
    method = ("--method", "odd_methods.py:poisoned(since=2)", "--set", "guard.max_skipped=1")
    said = fedloom("run", *TINY, *method, "--rounds", 20, "--out", "all", code=1).flat
    assert "2 rounds in a row were skipped, and guard.max_skipped=1; round 4: training div" in said
    assert "every update contains NaN or Inf" in said and "lower train.lr or set train.clip" in said
    assert saved_rounds(desk / "all")[-1] == 4 and len(lines(desk / "all")) == 4
    again = fedloom("resume", "all", "--trust", code=1).flat
    assert "round 6: training diverged" in again, "it goes on after the rounds that were skipped"
    weights = {
        round: (desk / "all" / "checkpoint" / f"round-{round}.safetensors").read_bytes()
        for round in saved_rounds(desk / "all")
    }
    assert len(set(weights.values())) == 1 and max(weights) == 6
