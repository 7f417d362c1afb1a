"""A fork server that starts before the settings are read, and does not change the result."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.talk import TINY, run
from fedloom.cli.prefork import prefork


def started(
    engine: str | None, torch_is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> "subprocess.Popen[bytes] | None":
    """The fork server's process while the settings are still unread."""
    with monkeypatch.context() as patch:
        if not torch_is_here:
            patch.delitem(sys.modules, "torch")
        with prefork(engine) as fork_server:
            return fork_server.process


@pytest.mark.parametrize("engine", [None, "auto", "inprocess", "vectorised", "ray"])
def test_no_fork_server_starts_without_engine_pool(
    engine: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert started(engine, False, monkeypatch) is None


def test_no_fork_server_starts_if_torch_is_imported_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert started("pool", True, monkeypatch) is None


def test_the_fork_server_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    process = started("pool", False, monkeypatch)
    assert process is not None and process.poll() is not None


def test_the_command_line_does_not_import_torch_before() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, fedloom.cli.main; assert 'torch' not in sys.modules"],
        check=True,
    )


def test_a_preforked_pool_gives_the_same_bits_and_leaves_no_process(desk: Path) -> None:
    """A remaining process would keep stdout open."""
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
