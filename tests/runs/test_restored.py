"""Warnings for whoever resumes a run: other versions of what the checkpoint was made with."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedloom.runs.durable_files import seal, unseal
from fedloom.runs.folder import RunFolder
from fedloom.runs.made_with import made_with


def test_other_versions_cause_a_warning(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = made_with()
    other = replace(now, torch="9.9", cpu="VSX", python="4.0", source="0" * 64)
    monkeypatch.setattr("fedloom.runs.restored.made_with", lambda: other)
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None and restored.state.round == 5
    source, *others = restored.warnings
    assert f"with fedloom source {now.source[:12]}, and this is fedloom source {12 * '0'}" in source
    versions = {"torch": now.torch, "Python": now.python, "CPU": now.cpu}
    for (what, then), warning in zip(versions.items(), others, strict=True):
        assert f"was made with {what} {then}, and this is {what}" in warning
        assert "last bits" in warning


def test_a_version_that_nobody_knows_is_no_reason_to_fail(run: Path) -> None:
    path = run / "checkpoint/MANIFEST-5.json"
    facts = unseal(path.read_bytes()) or {}
    facts["identity"]["made_with"]["code_path"]["compiler"] = "7"
    path.write_bytes(seal(facts))
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None and restored.state.round == 5
    (warning,) = restored.warnings
    assert "was made with compiler 7, and this is compiler unset" in warning
