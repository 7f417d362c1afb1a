"""Statistics of heterogeneity against numbers worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedloom.data import statistics
from fedloom.data.statistics import class_counts, entropy, gini, heterogeneity, jensen_shannon


def test_class_counts():
    labels = np.array([0, 2, 2, 1, 0])
    counts = class_counts(labels, [np.array([1, 2, 0]), np.array([3])], 4)
    np.testing.assert_array_equal(counts, [[1, 0, 2, 0], [0, 1, 0, 0]])


def test_statistics_worked_by_hand():
    # Two clients with one class each, a third with both; overall half and half.
    figures = heterogeneity(np.array([[4, 0, 0], [0, 4, 0], [2, 2, 0]]))
    assert (figures.clients, figures.classes, figures.samples) == (3, 3, 12)
    assert (figures.one_class_clients, figures.absent_classes, figures.imbalance_factor) == (
        2,
        1,
        1.0,
    )
    assert (figures.size.min, figures.size.max, figures.size_gini) == (4, 4, 0)
    assert (figures.classes_per_client.min, figures.classes_per_client.mean) == (
        1,
        pytest.approx(4 / 3),
    )
    assert figures.global_label_entropy == pytest.approx(1)
    assert (figures.label_entropy.median, figures.label_entropy.max) == (0, pytest.approx(1))
    assert (figures.total_variation.min, figures.total_variation.max) == (0, pytest.approx(0.5))
    # JS of (1, 0) and (1/2, 1/2): H(3/4, 1/4) - (0 + 1)/2
    apart = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25)) - 0.5
    assert (figures.jensen_shannon.min, figures.jensen_shannon.max) == (
        pytest.approx(0),
        pytest.approx(apart),
    )


def test_imbalance_is_head_over_tail():
    assert heterogeneity(np.array([[50, 5], [50, 0]])).imbalance_factor == 20


def test_gini_by_hand():
    # mean difference 1 over all ordered pairs, twice the mean 4
    assert gini(np.array([1, 3])) == pytest.approx(0.25)
    assert gini(np.array([0, 0, 0, 8])) == pytest.approx(0.75)


def test_distances_at_the_extremes():
    assert entropy(np.full(8, 1 / 8)) == pytest.approx(3)
    assert jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(1)


def test_an_empty_client_does_not_divide_by_zero():
    figures = heterogeneity(np.array([[0, 0], [3, 1]]))
    assert (figures.size.min, figures.total_variation.max, figures.label_entropy.min) == (0, 0, 0)


def test_json():
    facts = heterogeneity(np.array([[3, 1], [1, 1]])).as_json()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["size"] == {"min": 2.0, "median": 3.0, "mean": 3.0, "max": 4.0}


def test_clients_counted_in_pieces_have_the_same_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, parts = np.arange(40) % 3, np.array_split(np.arange(40)[::-1], 7)
    expected = [[int((labels[rows] == c).sum()) for c in range(3)] for rows in parts]
    monkeypatch.setattr(statistics, "CLIENTS_AT_ONCE", 2)
    assert statistics.class_counts(labels, parts, 3).tolist() == expected
