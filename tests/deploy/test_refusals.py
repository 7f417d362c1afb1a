"""When a site's SuperNode is started again, and when it is no use."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fedloom.deploy.layout import Kit, write_facts
from fedloom.deploy.node import STARTS_AFTER_A_KILL, SUPERNODE, refusal

REFUSED = "Exit Code: 305\n[code: 2004] Failed to activate SuperNode.\n"
ACCEPTED = "SuperNode ID: 17\n" + "Received successfully\nSent successfully\n" * 500


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    write_facts(tmp_path / "site.toml", {"name": "north", "server": "127.0.0.1:9"})
    return Kit.find(tmp_path)


def reason(kit: Kit, log: str) -> str:
    path = kit.path / "supernode.log"
    path.write_text(log)
    return str(refusal(kit, SimpleNamespace(name=SUPERNODE, exit_code=1, log=path)))


def test_a_key_that_was_never_accepted_is_refused_at_once(kit: Kit) -> None:
    assert "does not know the key in" in reason(kit, REFUSED)


def test_a_site_that_was_connected_is_started_again_for_a_while(kit: Kit) -> None:
    """The server refuses a node that was killed until it has missed its heartbeats."""
    assert reason(kit, ACCEPTED + REFUSED * STARTS_AFTER_A_KILL) == "None"
    assert "does not know the key" in reason(kit, ACCEPTED + REFUSED * (STARTS_AFTER_A_KILL + 1))
    assert reason(kit, REFUSED * 20 + ACCEPTED + REFUSED) == "None"


def test_a_wrong_certificate_is_refused_at_once(kit: Kit) -> None:
    assert "does not have the certificate" in reason(kit, ACCEPTED + "CERTIFICATE_VERIFY_FAILED")


def test_any_other_end_is_followed_by_a_new_start(kit: Kit) -> None:
    assert reason(kit, "Killed") == "None"
