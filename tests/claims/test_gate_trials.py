"""Trials of a gate are kept, one per scale that was tried."""

import json
from pathlib import Path

import pytest

from fedloom.claims.gate_trials import read_trials, record_trial
from fedloom.core.errors import UserError

FACTS = {"suite": "mlb50", "seed": 100, "scale": "small", "gate": [], "commit": "abc", "why": "w"}


def test_every_scale_that_was_tried_is_kept(tmp_path: Path) -> None:
    record_trial({**FACTS, "changed": {"rounds": 50}, "met": False}, tmp_path)
    record_trial({**FACTS, "changed": {}, "met": None}, tmp_path)
    file = record_trial({**FACTS, "changed": {}, "met": True}, tmp_path)  # repeated
    assert file == tmp_path / "mlb50" / "gate.json"
    assert [(t["changed"], t["met"]) for t in read_trials(file)] == [
        ({"rounds": 50}, False), ({}, True),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{", json.dumps({"met": True})])
def test_another_file_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "gate.json").write_text(text)
    with pytest.raises(UserError, match="restore it from a copy"):
        read_trials(tmp_path / "gate.json")
