"""The secret of a site: made once, private, never replaced silently."""

from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.deploy.site.secret import site_secret


def test_a_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    secret = site_secret(tmp_path / "a")
    assert len(secret) == 64 and site_secret(tmp_path / "a") == secret
    assert site_secret(tmp_path / "b") != secret
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_what_is_no_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    with pytest.raises(UserError, match="does not hold a secret of fedloom"):
        site_secret(path)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    site_secret(path)
    path.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        site_secret(path)
