"""The history of a run: a sequence, totals, the accuracy curve, a table."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from fedloom.core.errors import UserError
from fedloom.metrics.history import History
from metrics.example_records import ROUND

HISTORY = History([replace(ROUND, round=1, accuracy=None), replace(ROUND, round=2), ROUND])


def test_a_history_is_a_sequence() -> None:
    assert len(HISTORY) == 3 and HISTORY[-1] is ROUND
    assert [record.round for record in HISTORY] == [1, 2, 3]
    assert isinstance(HISTORY[1:], History) and list(HISTORY[1:]) == [HISTORY[1], ROUND]
    assert repr(HISTORY) == "<History of 3 rounds, accuracy 0.2500>"
    assert repr(History()) == "<History of 0 rounds>"


def test_totals_and_the_accuracy_curve_of_a_history() -> None:
    assert HISTORY.accuracy == {2: 0.25, 3: 0.25}
    assert (HISTORY.total("bytes_up"), HISTORY.total("seconds")) == (300, 4.5)
    sparse = History([replace(ROUND, evaluation_seconds=None), ROUND])
    assert sparse.total("evaluation_seconds") == 0.125


def test_a_history_becomes_a_table() -> None:
    pytest.importorskip("pandas")
    table = HISTORY.to_pandas()
    assert list(table["round"]) == [1, 2, 3] and table["accuracy"].isna().tolist() == [True, 0, 0]
    assert table["global_model.mean_class_recall.mean"].tolist() == [0.75] * 3


def test_without_pandas_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="needs pandas; install it with: pip install pandas"):
        HISTORY.to_pandas()
