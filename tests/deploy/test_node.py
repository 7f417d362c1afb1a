"""What becomes of a site whose processes end: started again, or given up with a reason."""

import sys
from pathlib import Path

import pytest

from fedloom.core.errors import RunError, UserError
from fedloom.deploy import node
from fedloom.deploy.layout import Kit
from fedloom.deploy.node import SUPERNODE, WORKER, Refusals
from fedloom.deploy.processes import Process

pytestmark = pytest.mark.posix


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    (tmp_path / "site.toml").write_text('name = "north"\nserver = "fl.example.org:9092"\n')
    return Kit.find(tmp_path)


def ended(kit: Kit, name: str, log: str, code: int = 1) -> Process:
    program = f"import sys; print({log!r}); sys.exit({code})"
    process = Process(name, [sys.executable, "-c", program], {}, kit.logs / "log")
    process.wait_until(lambda: process.exit_code is not None, 30, "did not end")
    return process


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("SSL: CERTIFICATE_VERIFY_FAILED", "does not have the certificate of this deployment"),
        ("[code: 2001] must be registered", "accepts sites with a key only"),
    ],
)
def test_a_site_that_is_refused_gives_up(kit: Kit, log: str, why: str) -> None:
    reason = Refusals(kit, print)(ended(kit, SUPERNODE, log))
    assert isinstance(reason, RunError) and why in str(reason)
    assert "fl.example.org:9092" in str(reason)


def test_a_key_that_is_refused_may_be_that_of_a_connection_that_has_not_expired(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    refusals = Refusals(kit, said.append)
    log = "[code: 2004] Failed to activate SuperNode."
    assert refusals(ended(kit, SUPERNODE, log)) is None
    assert refusals(ended(kit, SUPERNODE, log)) is None
    assert len(said) == 1 and "still counts its earlier connection" in said[0]
    assert refusals.refused_since is not None
    refusals.refused_since -= node.STALE_SECONDS
    reason = refusals(ended(kit, SUPERNODE, log))
    assert isinstance(reason, RunError) and "does not know the key" in str(reason)


def test_a_refusal_long_after_another_is_a_new_one(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals(kit, print)
    refusals.refused_since = 0.0
    process = ended(kit, SUPERNODE, "[code: 2004]")
    process.began -= 1000  # it was connected for long before it ended
    assert refusals(process) is None


def test_an_old_log_is_not_held_against_a_new_process(kit: Kit) -> None:
    ended(kit, SUPERNODE, "CERTIFICATE_VERIFY_FAILED")
    assert Refusals(kit, print)(ended(kit, SUPERNODE, "killed")) is None


def test_bad_data_are_reported_as_the_worker_says(kit: Kit) -> None:
    log = "2026-01-01 00:00:00 error: 'x.csv' has no column 'ill'; name another"
    reason = Refusals(kit, print)(ended(kit, WORKER, log, code=2))
    assert isinstance(reason, UserError)
    assert str(reason) == "'x.csv' has no column 'ill'; name another"
    assert Refusals(kit, print)(ended(kit, WORKER, log, code=1)) is None
