"""Checkpoints: what each one verifies, and which is the fallback."""

import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import torch

from fedloom.core.errors import RunError
from fedloom.core.params import sha256
from fedloom.runs import checkpoint
from fedloom.runs.checkpoint_files import saved_rounds
from fedloom.runs.durable_files import seal, unseal
from fedloom.runs.folder import RunFolder
from runs import toy


def test_manifests_are_chained_and_complete(run: Path) -> None:
    for round in (3, 4, 5):
        facts = unseal((run / f"checkpoint/MANIFEST-{round}.json").read_bytes())
        assert facts is not None
        assert facts["weights_sha256"] == sha256(toy.state(round).params)
        made_with = facts["identity"]["made_with"]
        assert made_with["torch"] == torch.__version__ and facts["threads"] == 1
    before = (run / "checkpoint/MANIFEST-4.json").read_bytes()
    assert facts["previous"] == {"round": 4, "sha256": checkpoint.sha256(before)}


@pytest.mark.parametrize("broken", [1, 2])
def test_restore_falls_back_to_the_newest_valid_checkpoint(run: Path, broken: int) -> None:
    for round in range(5, 5 - broken, -1):
        (run / f"checkpoint/round-{round}.safetensors").unlink()
    with RunFolder.open(run) as folder:
        restored = folder.restore()
        assert restored is not None
        assert [
            w for w in restored.warnings if f"resuming from round {5 - broken}" in w
        ] == restored.warnings
        assert (
            len(restored.warnings) == broken
            and "round-5.safetensors is missing" in restored.warnings[0]
        )
        assert toy.restored_round(folder) == 5 - broken
        assert saved_rounds(run / "checkpoint") == list(range(5 - broken, 2, -1))
    assert toy.assert_resumes(run, last=7) == 5 - broken


def test_without_a_valid_checkpoint_the_error_lists_the_damage_and_nothing_is_deleted(
    run: Path,
) -> None:
    for payload in run.glob("checkpoint/round-*"):
        payload.write_bytes(b"")
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != "lock"}
    with RunFolder.open(run) as folder, pytest.raises(RunError) as error:
        folder.restore()
    for said in (
        "round 5: round-5.safetensors is damaged",
        "round 3: ",
        f"fedloom run --config {run}/config.toml --out NEW",
    ):
        assert said in str(error.value)
    assert {p: p.read_bytes() for p in before} == before


def test_states_without_manifests_are_not_taken_for_a_new_run(run: Path) -> None:
    for manifest in run.glob("checkpoint/MANIFEST*"):
        manifest.unlink()
    with RunFolder.open(run) as folder, pytest.raises(RunError, match="its manifest is missing"):
        folder.restore()


def test_a_manifest_of_another_run_is_rejected(run: Path, disk: Path) -> None:
    """The same settings and no memories, so that only the chain of manifests differs."""
    ours, other = disk / "ours", disk / "other"
    for path, note in ((ours, 1), (other, 2)):
        with RunFolder.create(path, toy.CONFIG) as folder:
            for round in (1, 2):
                folder.save(toy.state(round), best=round, note=note)
    shutil.copy(other / "checkpoint/MANIFEST-2.json", ours / "checkpoint")
    with RunFolder.open(ours) as folder:
        restored = folder.restore()
    assert restored is not None and restored.state.round == 1
    assert "does not follow the checkpoint of round 1" in restored.warnings[0]


def test_a_manifest_under_another_round_is_rejected(run: Path) -> None:
    shutil.copy(run / "checkpoint/MANIFEST-4.json", run / "checkpoint/MANIFEST-9.json")
    shutil.copy(run / "checkpoint/round-4.safetensors", run / "checkpoint/round-9.safetensors")
    assert toy.assert_resumes(run, last=6) == 5


def test_a_state_that_does_not_match_its_manifest_is_rejected(run: Path) -> None:
    path = run / "checkpoint/MANIFEST-5.json"
    path.write_bytes(seal({**(unseal(path.read_bytes()) or {}), "weights_sha256": "0" * 64}))
    assert toy.assert_resumes(run, last=6) == 4


def test_a_missing_older_manifest_does_no_harm(run: Path) -> None:
    (run / "checkpoint/MANIFEST-4.json").unlink()
    assert toy.assert_resumes(run, last=6) == 5


def test_a_locked_database_is_not_reported_as_damaged(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    other = sqlite3.connect(run / "clients.sqlite")
    other.execute("BEGIN EXCLUSIVE")
    with RunFolder.open(run) as folder:
        with pytest.raises(
            RunError, match=rf"^{run}/clients.sqlite: database is locked; close the program"
        ):
            folder.restore()
        other.close()
        assert toy.restored_round(folder) == 5


WRONG_FACTS = [
    ("round", "5"),
    ("round", -5),
    ("config_sha256", None),
    ("payload_sha256", "ab"),
    ("weights_sha256", 7),
    ("clients", None),
    ("clients", {"count": -1, "digest": "0" * 64}),
    ("clients", {"count": True, "digest": "0" * 64}),
    ("metrics", {"bytes": "9", "sha256": "0" * 64}),
    ("metrics", {"bytes": -9, "sha256": "0" * 64}),
    ("layout", []),
    ("layout", {"params": {}, "shared": {}, "memory": {}}),
    ("layout", {"params": [], "shared": {"control": None}, "memory": {}}),
    ("layout", {"params": [], "shared": {}, "memory": {"stage": []}}),
    ("layout", {"params": ["a", "a"], "shared": {}, "memory": {}}),
    ("identity", ["torch"]),
    ("identity", {"made_with": {"torch": 2}}),
    ("threads", 0),
    ("previous", 4),
    ("previous", {"round": "../4", "sha256": "0" * 64}),
    ("previous", {"round": 5, "sha256": "0" * 64}),
    ("extra", None),
    ("extra", {"engine": 3}),
    ("unknown", 1),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FACTS, ids=lambda v: str(v)[:30])
def test_a_manifest_whose_contents_make_no_sense_is_skipped(
    run: Path, field: str, value: object
) -> None:
    """Its checksum is right: whoever wrote it has recomputed it."""
    path = run / "checkpoint/MANIFEST-5.json"
    path.write_bytes(seal({**(unseal(path.read_bytes()) or {}), field: value}))
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None and restored.state.round == 4
    (warning,) = restored.warnings
    assert "MANIFEST-5.json" in warning and "resuming from round 4" in warning


def test_a_manifest_with_a_field_too_few_is_skipped(run: Path) -> None:
    path = run / "checkpoint/MANIFEST-5.json"
    facts = unseal(path.read_bytes()) or {}
    for missing in facts.keys() - {"format"}:
        path.write_bytes(seal({name: v for name, v in facts.items() if name != missing}))
        reason = checkpoint._read_manifest(run / "checkpoint", 5)
        assert isinstance(reason, str) and missing in reason


def test_a_state_with_other_tensors_than_the_manifest_says_is_skipped(run: Path) -> None:
    """Whatever the layout leaves out would be lost without a word."""
    path = run / "checkpoint/MANIFEST-5.json"
    facts = unseal(path.read_bytes()) or {}
    facts["layout"]["shared"].pop("control")
    path.write_bytes(seal(facts))
    with RunFolder.open(run) as folder:
        restored = folder.restore()
    assert restored is not None and "holds other tensors" in restored.warnings[0]


def test_the_caller_can_say_that_a_state_is_not_of_its_run(run: Path) -> None:
    def only_even(state: checkpoint.ServerState) -> str | None:
        return f"{state.round} is odd" if state.round % 2 else None

    with RunFolder.open(run) as folder:
        restored = folder.restore(only_even)
    assert restored is not None and restored.state.round == 4
    assert "does not belong to this run: 5 is odd" in restored.warnings[0]
