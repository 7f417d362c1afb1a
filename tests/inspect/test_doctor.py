"""`fedloom doctor` on a machine that fails one of the two checks."""

from pathlib import Path

import pytest

from cli import talk
from fedloom.inspect import doctor


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the two short runs, which tests/cli/test_catalogue.py makes."""
    monkeypatch.setenv("FEDLOOM_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "_is_reproducible", lambda: True)


@pytest.mark.parametrize(
    ("failing", "field"),
    [("_is_reproducible", "reproducible"), ("_is_writable", "folder_writable")],
)
def test_a_failed_check_is_exit_code_1(
    failing: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, failing, lambda *folder: False)
    report = talk.fedloom("doctor", "--json", code=1).json
    assert report["ok"] is report[field] is False
    assert "NOT ok, see above" in talk.fedloom("doctor", code=1).out


def test_a_folder_that_does_not_exist_is_not_writable(tmp_path: Path) -> None:
    assert doctor._is_writable(tmp_path) and not doctor._is_writable(tmp_path / "absent")


def test_missing_extras_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXTRAS", {"here": "json", "absent": "no_such_package"})
    assert doctor.examine()["extras"] == ["here"]
