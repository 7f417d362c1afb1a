"""A manifest that was edited and sealed again is rejected field by field, never a traceback."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.errors import RunError
from fedloom.core.params import sha256 as tensors_sha256
from fedloom.runs.durable_files import seal, sha256, unseal
from fedloom.runs.folder import RunFolder
from fedloom.runs.manifest import MANIFEST_FORMAT
from fedloom.runs.tensor_bytes import pack
from runs import toy

VALUES = (None, True, -1, 1.5, "text", [], [3], {}, {"a": 1}, 10**30)


def edited(facts: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The facts with one entry replaced, left out or added, at every depth."""
    if not isinstance(facts, dict):
        return
    yield (*at, "more"), {**facts, "more": 1}
    for name, value in facts.items():
        yield (*at, name), {key: item for key, item in facts.items() if key != name}
        yield from (((*at, name), {**facts, name: other}) for other in VALUES)
        for place, other in edited(value, (*at, name)):
            yield place, {**facts, name: other}


def test_a_manifest_that_was_sealed_again_is_rejected_or_harmless(run: Path) -> None:
    path = run / "checkpoint" / "MANIFEST-5.json"
    good = path.read_bytes()
    facts = unseal(good)
    assert facts is not None
    expected = tensors_sha256(toy.state(5).tensors())
    outcomes = {"rejected": 0, "harmless": 0}
    for place, other in edited(facts):
        path.write_bytes(seal(other))
        with RunFolder.read_only(run) as folder:
            restored = folder.restore()
            assert restored is not None
            fell_back = restored.state.round == 4
            same = tensors_sha256(restored.state.tensors()) == expected
            assert fell_back or same, place
            outcomes["rejected" if fell_back else "harmless"] += 1
    assert outcomes["rejected"] > 250
    path.write_bytes(good)
    assert toy.assert_resumes(run, last=6) == 5


def test_the_reason_names_the_field(run: Path) -> None:
    for number in (3, 4, 5):
        path = run / "checkpoint" / f"MANIFEST-{number}.json"
        facts = unseal(path.read_bytes()) or {}
        identity = {**facts["identity"], "made_with": {"torch": 3}}
        path.write_bytes(seal({**facts, "identity": identity}))
    with (
        RunFolder.open(run) as folder,
        pytest.raises(RunError, match=r"invalid: field 'identity\.made_with\.fedloom' is miss"),
    ):
        folder.restore()


def test_another_format_is_named(run: Path) -> None:
    assert MANIFEST_FORMAT == 3
    for path in (run / "checkpoint").glob("MANIFEST-*.json"):
        path.write_bytes(seal({**(unseal(path.read_bytes()) or {}), "format": 1}))
    with (
        RunFolder.open(run) as folder,
        pytest.raises(RunError, match="has format 1, and this fedloom reads 3"),
    ):
        folder.restore()


def test_a_state_with_other_tensors_than_the_manifest_names_is_rejected(
    run: Path, tmp_path: Path
) -> None:
    for number, payload in enumerate((pack({}), b"", b"\0" * 64, b"12345678{}" + b"[" * 5000)):
        copy = tmp_path / str(number)
        shutil.copytree(run, copy)
        manifest = copy / "checkpoint" / "MANIFEST-5.json"
        facts = {**(unseal(manifest.read_bytes()) or {}), "payload_sha256": sha256(payload)}
        manifest.write_bytes(seal(facts))
        (copy / "checkpoint" / "round-5.safetensors").write_bytes(payload)
        assert toy.assert_resumes(copy, last=6) == 4
