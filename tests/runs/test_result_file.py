"""The result of a finished run: read as it was written, or not at all."""

import json
from pathlib import Path

import pytest

from fedloom.core.errors import RunError
from fedloom.runs.durable_files import seal
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import FORMAT


def test_the_result(run: Path) -> None:
    summary = {"accuracy": 0.75, "curve": [1, 2.5], "personal": {"mean": None}}
    with RunFolder.open(run) as folder:
        assert folder.result() is None
        folder.finish(summary)
    assert RunFolder.read_only(run).result() == summary
    good = (run / "result.json").read_bytes()
    assert json.loads(good)["format"] == FORMAT
    for bad in (
        good.replace(b"0.75", b"0.95"),
        good[:-3],
        b"",
        b"[1]",
        seal({"format": 2, "config_sha256": "other", "summary": {}}),
        seal({"config_sha256": folder.config_sha256, "summary": {}}),
        seal({"format": 3, "config_sha256": folder.config_sha256, "summary": {}}),
    ):
        (run / "result.json").write_bytes(bad)
        with pytest.raises(
            RunError,
            match=r"result.json is damaged or belongs to other settings; delete it, and `fedloom",
        ):
            RunFolder.read_only(run).result()
