"""A short form of the attacks on data files; `make check-trust` runs the long one."""

import json
from pathlib import Path

import pytest

from fedloom.data import info_file, store
from trust import data_files, mutations

CASES = 200


def assert_nothing_bad(outcomes: dict[str, int], failures: list[str]) -> None:
    assert failures == [], f"{outcomes}\n" + "\n".join(failures)
    assert sum(outcomes.values()) == CASES


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    failures: list[str] = []
    outcomes = data_files.attack(CASES, 1, tmp_path, failures)
    assert_nothing_bad(outcomes, failures)
    assert outcomes["accepted"] > 20 and outcomes["rejected"] > 80, "the mutations do something"


def test_mutated_data_sets_are_noticed(tmp_path: Path) -> None:
    failures: list[str] = []
    outcomes = data_files.attack_stored(CASES, 1, tmp_path, failures)
    assert_nothing_bad(outcomes, failures)
    assert outcomes["rejected"] > 120


@pytest.mark.parametrize("name", data_files.FORMATS)
def test_the_files_are_valid_before_they_are_mutated(name: str, tmp_path: Path) -> None:
    data_files.FORMATS[name](tmp_path / "data")
    files = list((tmp_path / "data").iterdir())
    path = files[0] if len(files) == 1 and files[0].is_file() else tmp_path / "data"
    assert data_files.is_consistent(store.add("d", path, root=tmp_path / "home"))


def test_a_traceback_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(data_files.store, "add", broken)
    failures: list[str] = []
    assert data_files.attack(3, 1, tmp_path, failures) == {"traceback": 3}
    assert "KeyError: 'x'" in failures[0] and "seed 1, case 0" in failures[0]


def test_a_wrong_data_set_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the checksum of info.json were not compared, as it was once."""

    def unchecked(data: bytes) -> dict[str, object] | None:
        try:
            return {k: v for k, v in json.loads(data).items() if k != "checksum"}
        except (ValueError, AttributeError):
            return None

    monkeypatch.setattr(info_file, "unseal", unchecked)
    monkeypatch.setattr(mutations, "BYTES", [mutations.flip_bits])
    assert data_files.attack_stored(2 * CASES, 1, tmp_path)["silently wrong"] > 0
