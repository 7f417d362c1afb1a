"""Pieces of one array of rows are the same to every reader as a list of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.data.identity import partition_sha256
from fedloom.data.partition.draws import rows_by_class
from fedloom.data.parts import Pieces, all_rows, part_sizes
from fedloom.data.statistics import class_counts

SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(SIZES, st.randoms(use_true_random=False))
def test_pieces_in_any_order_are_like_a_list_of_arrays(sizes: list[int], random: object) -> None:
    rows = np.arange(sum(sizes) + 2)[::-1].copy()  # two rows are left out
    pieces = Pieces.consecutive(rows, np.array(sizes))
    order = list(range(len(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for parts in (pieces, pieces[1:], pieces.chosen(np.array(order))):
        listed = list(parts)
        assert part_sizes(parts).tolist() == part_sizes(listed).tolist()
        assert all_rows(parts).tolist() == all_rows(listed).tolist()
        assert partition_sha256(parts) == partition_sha256(listed)
        labels = rows % 3
        assert (class_counts(labels, parts, 3) == class_counts(labels, listed, 3)).all()


def test_every_client_has_its_own_piece() -> None:
    pieces = Pieces.consecutive(np.array([4, 2, 7, 1]), np.array([1, 0, 3]))
    assert [piece.tolist() for piece in pieces] == [[4], [], [2, 7, 1]]
    assert pieces[-1].tolist() == [2, 7, 1]
    with pytest.raises(IndexError):
        pieces[3]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_rows_by_class_are_the_rows_of_each_class_in_order(labels: list[int]) -> None:
    values = np.array(labels)
    expected = [np.flatnonzero(values == label).tolist() for label in sorted(set(labels))]
    assert [rows.tolist() for rows in rows_by_class(values)] == expected
