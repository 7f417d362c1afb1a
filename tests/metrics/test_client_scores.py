"""Scores of clients, looked up by name."""

from __future__ import annotations

from fedloom.metrics.client_scores import Spread
from metrics.example_records import SCORES


def test_a_spread_is_found_by_the_name_of_the_score() -> None:
    assert SCORES.spread_of("auroc") == Spread(0.875, 0.25, 0.5)
    assert SCORES.spread_of("mean_class_recall") == Spread(0.75, 0.2, 0.125)
    assert SCORES.spread_of("mae") is None
