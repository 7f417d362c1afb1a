"""Offline W&B runs, made where there is no network and read back with W&B's own reader."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from cli import talk
from fedloom.core.errors import UserError
from fedloom.core.params import sha256
from fedloom.runs.folder import RunFolder
from support import warm_python
from trackers.following import METRICS, PERSONAL, accuracies, cut_off

pytest.importorskip("wandb", reason='needs: pip install "fedloom[wandb]"')

from fedloom.trackers.wandb import WandB, choose_mode

LOOPBACK = Path(__file__).parents[2] / "scripts" / "loopback.sh"
NO_NAMESPACE = 125
CUT_OFF = """
import sys
from pathlib import Path
from trackers.following import cut_off
from fedloom.trackers.wandb import WandB
cut_off(Path(sys.argv[1]), 3, WandB(), checkpoint_every=2)
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from trackers.following import cut_off
from fedloom.trackers.wandb import WandB
class Killed(WandB):
    def on_stop(self, error):
        os.kill(os.getpid(), signal.SIGKILL)
cut_off(Path(sys.argv[1]), 3, Killed())
"""


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, desk: Path) -> Iterator[None]:
    """Nobody is logged in, and W&B keeps what it keeps in the folder of the test."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk))
    monkeypatch.setenv("NETRC", str(desk / "netrc"))
    for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(desk / "kept"))
    yield


@functools.cache
def isolated() -> warm_python.Server:
    """Runs programs where there is no network."""
    done = subprocess.run(["sh", str(LOOPBACK), "true"], capture_output=True, text=True)
    if done.returncode == NO_NAMESPACE:
        pytest.skip(f"no network namespace is available here: {done.stderr}")
    server = warm_python.Server(["sh", str(LOOPBACK)])
    atexit.register(server.close)
    return server


def without_network(*command: object, code: int = 0) -> str:
    """What a Python command says where there is no network, and it must end with this code."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = warm_python.run(*command, env=env, server=isolated(), timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_programs_run_without_a_network() -> None:
    """Only the loopback device is there, for those that are forked, too."""
    listed = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert without_network("-c", listed) == "['lo']\n"


def logs() -> list[list[dict[str, Any]]]:
    """The records of every offline run, the first one first."""
    files = sorted(Path("wandb").glob("offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime)
    return [read(file) for file in files]


def read(file: Path) -> list[dict[str, Any]]:
    printed = subprocess.run(
        [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)],
        capture_output=True, text=True, check=True,
        env=os.environ | {"WANDB_MODE": "offline"},
    ).stdout  # fmt: skip
    return [json.loads(line) for line in printed.splitlines()]


def of_kind(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [record[kind] for record in records if record["type"] == kind]


def exit_code(records: list[dict[str, Any]]) -> int:
    (end,) = of_kind(records, "exit")
    return int(end["exit_code"])


def history(records: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Metrics by step; W&B adds those whose names begin with an underscore."""
    items = {item["step"]["num"]: item["item"] for item in of_kind(records, "history")}
    assert len(items) == len(of_kind(records, "history"))
    return {
        step: {name: value for name, value in item.items() if name[0] != "_"}
        for step, item in items.items()
    }


def test_a_run_is_written_with_settings_and_files(desk: Path) -> None:
    said = without_network(
        "-m", "fedloom", "run", *talk.TINY, "--method", "finetune", "--rounds", 3, "--out", "run",
        "--track", "wandb", "--track-clients",
    )  # fmt: skip
    (records,) = logs()
    assert "wandb: wandb sync" in said and "offline-run-" in said
    rounds = history(records)
    assert {n: item["accuracy"] for n, item in rounds.items()} == accuracies(Path("run"))
    assert set(rounds[2]) == METRICS
    (run,) = of_kind(records, "run")
    config = run["config"]["update"]
    assert (run["project"], run["display_name"]) == ("fedloom", "finetune-s0")
    assert (config["method.name"], config["train.batch"]) == ("finetune", 10)
    assert any(set(s["update"]) == PERSONAL for s in of_kind(records, "summary"))
    (artifact,) = of_kind(records, "artifact")
    kept = {item["path"]: Path(item["local_path"]) for item in artifact["manifest"]["contents"]}
    assert set(kept) == {
        "config.toml", "metrics.jsonl", "result.json", "model.safetensors", "clients.table.json"
    }  # fmt: skip
    table = json.loads(kept["clients.table.json"].read_text())
    assert table["columns"] == ["client", "accuracy", "rounds", "rejected"]
    assert [row[0] for row in table["data"]] == list(range(8))
    with RunFolder.read_only(Path("run")) as folder:
        restored = folder.restore()
    assert restored is not None
    assert sha256(load_file(kept["model.safetensors"])) == sha256(restored.state.params)
    assert exit_code(records) == 0


@pytest.mark.slow
def test_a_resumed_run_continues_under_the_same_id(desk: Path) -> None:
    """Round 3 was written, but its checkpoint was not: it is run again, and not written again."""
    without_network("-c", CUT_OFF, "run")
    without_network("-m", "fedloom", "resume", "run", "--track", "wandb")
    first, second = logs()
    assert of_kind(first, "run")[0]["run_id"] == of_kind(second, "run")[0]["run_id"]
    assert (list(history(first)), list(history(second))) == ([1, 2, 3], [4])
    assert (exit_code(first), exit_code(second)) == (130, 0)
    told = {n: item["accuracy"] for log in (first, second) for n, item in history(log).items()}
    assert told == accuracies(Path("run"))


@pytest.mark.slow
def test_after_a_kill_the_files_say_which_rounds_they_have(desk: Path) -> None:
    """W&B writes with a delay: what was lost is written again, what was not lost is not."""
    without_network("-c", KILLED, "run", code=-signal.SIGKILL)
    without_network("-m", "fedloom", "resume", "run", "--track", "wandb")
    first, second = logs()
    assert sorted([*history(first), *history(second)]) == [1, 2, 3, 4]


@pytest.mark.slow
def test_rounds_on_the_disk_are_not_written_again(desk: Path) -> None:
    """As after a kill that came once the files were written."""
    without_network("-c", CUT_OFF, "run")
    memory = Path("run/trackers.json")
    entries = json.loads(memory.read_text())
    assert entries["wandb fedloom"]["rounds"] == 3
    entries["wandb fedloom"]["rounds"] = 0
    memory.write_text(json.dumps(entries))
    without_network("-m", "fedloom", "resume", "run", "--track", "wandb")
    first, second = logs()
    assert (list(history(first)), list(history(second))) == ([1, 2, 3], [4])


def test_a_run_that_began_without_it_is_written_whole(desk: Path) -> None:
    cut_off(Path("run"), 2)
    without_network("-m", "fedloom", "resume", "run", "--track", "wandb=us/them")
    (records,) = logs()
    assert list(history(records)) == [1, 2, 3, 4]
    (run,) = of_kind(records, "run")
    assert (run["entity"], run["project"]) == ("us", "them")


class Library:
    """Stands for wandb, with or without someone who is logged in."""

    def __init__(self, logged_in: bool) -> None:
        self.logged_in = logged_in

    def login(self, *, prompt: bool, verify: bool) -> bool:
        assert not prompt and not verify  # neither a question nor a request
        return self.logged_in


@pytest.mark.parametrize(
    ("logged_in", "variable", "mode"),
    [
        (False, "", "offline"),
        (True, "", "online"),
        (True, "offline", None),
        (False, "online", None),
    ],
)
def test_nothing_is_sent_unless_the_user_has_configured_it(
    logged_in: bool, variable: str, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)
    assert choose_mode(Library(logged_in)) == mode


@pytest.mark.parametrize("where", ["a/b/c", "/tmp", "a/"])
def test_a_place_is_a_project(where: str) -> None:
    with pytest.raises(UserError, match="is neither PROJECT nor ENTITY/PROJECT"):
        WandB(where)
