"""The short form of the attack on settings, and that it would notice what it looks for."""

from pathlib import Path

import pytest

from fedloom.settings.config import load
from trust import configs
from trust.configs import Case, attack, misreadings, outcome


def test_mutated_settings_are_accepted_as_written_or_rejected_in_words() -> None:
    counts = attack(300, seed=0)
    assert counts["traceback"] == 0
    assert counts["silently wrong"] == 0
    assert counts["accepted"] > 10 and counts["rejected"] > 200


@pytest.mark.parametrize(
    ("content", "sets"),
    [
        (b"rounds = 3", ()),
        (b'[train]\nlr = "0.05"', ()),
        (b"[train]\nlr = true", ()),
        (b'method = "fedprox(mu=0.7)"', ()),
        (b'[data]\naugment = ["pad-crop(padding=2)"]', ()),
        (b"", ("data.clients=7",)),
    ],
)
def test_a_value_that_is_lost_is_noticed(content: bytes, sets: tuple[str, ...]) -> None:
    assert list(misreadings(Case(content, sets), load({})))


def test_an_error_that_is_no_answer_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configs, "check_names", lambda config: {}["missing"])
    assert outcome(Case(b"rounds = 3", ()), tmp_path / "case.toml")[0] == "traceback"
