"""What a command begins ahead of its settings, and that it makes no difference to what comes out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.talk import TINY, run
from fedloom.cli.prefork import prefork


def begun(
    engine: str | None, torch_is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> "subprocess.Popen[bytes] | None":
    """The process that is there before the settings are read."""
    with monkeypatch.context() as patch:
        if not torch_is_here:
            patch.delitem(sys.modules, "torch")
        with prefork(engine) as fork_server:
            return fork_server.process


@pytest.mark.parametrize("engine", [None, "auto", "inprocess", "vectorised", "ray"])
def test_nothing_is_begun_unless_a_pool_is_asked_for(
    engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begun(engine, False, monkeypatch) is None


def test_nothing_is_begun_where_torch_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun("pool", True, monkeypatch) is None


def test_what_was_begun_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = begun("pool", False, monkeypatch)
    assert process is not None and process.poll() is not None


def test_the_command_line_imports_no_torch_before_it() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, fedloom.cli.main; assert 'torch' not in sys.modules"],
        check=True,
    )


def test_a_pool_that_was_begun_ahead_gives_the_same_bits_and_leaves_no_process(desk: Path) -> None:
    """A process that is left would hold stdout open."""
    command = [
        sys.executable,
        "-m",
        "fedloom",
        "run",
        *TINY,
        "--rounds",
        "2",
        "--out",
        "pooled",
        "--json",
    ]
    said = subprocess.run(
        [*command, "--engine", "pool", "--workers", "2"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0
    assert (
        json.loads(said.stdout)["weights_sha256"] == run(desk / "alone", rounds=2)["weights_sha256"]
    )
