"""A subset of LEAF's users: with enough samples, evenly spaced, the same in both splits."""

from __future__ import annotations

import pytest

from fedloom.core.errors import UserError
from fedloom.data.sources import read

PICTURE = [0.0, 0.5, 0.5, 1.0]


def written(write, file, sizes):
    users = {
        name: ([PICTURE] * count, [n % 2 for n in range(count)]) for name, count in sizes.items()
    }
    return write.leaf(file, users)


@pytest.fixture
def one_file(write, tmp_path):
    """Ten users u0 to u9; user n has n + 5 samples."""
    return written(write, tmp_path / "all_data.json", {f"u{n}": n + 5 for n in range(10)})


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, "0123456789"),
        ({"min_samples": 8}, "3456789"),
        ({"users": 5}, "02468"),
        ({"users": 3}, "036"),
        ({"users": 3, "min_samples": 8}, "357"),
        ({"users": 7, "min_samples": 8}, "3456789"),
        ({"users": 1, "min_samples": 14}, "9"),
    ],
)
def test_which_users_are_kept(one_file, options, kept):
    dataset = read(one_file, **options)
    assert dataset.users == tuple(f"u{n}" for n in kept)
    assert len(dataset.train) + len(dataset.test) == sum(int(n) + 5 for n in kept)
    assert set(dataset.train.users.tolist()) == set(range(len(kept)))
    assert ("kept" in dataset.about) == bool(options), "the data set says what was left out"


@pytest.mark.parametrize(
    "options", [{"users": 11}, {"users": 8, "min_samples": 8}, {"min_samples": 15}]
)
def test_more_users_than_available_are_rejected(one_file, options):
    with pytest.raises(
        UserError,
        match=r"users with at least \d+ samples, expected .* or more; "
        r"lower the option users or min_samples",
    ):
        read(one_file, **options)


def test_a_size_counts_both_splits_and_the_test_split_keeps_the_same_users(write, tmp_path):
    written(write, tmp_path / "train" / "a.json", {"few": 2, "many": 4, "more": 6})
    written(write, tmp_path / "test" / "a.json", {"few": 1, "many": 2, "other": 9})
    dataset = read(tmp_path, min_samples=6)
    assert dataset.users == ("many", "more")
    assert (len(dataset.train), len(dataset.test)) == (10, 2)


def test_a_test_split_of_other_users_stays_whole(write, tmp_path):
    written(write, tmp_path / "train" / "a.json", {"a": 2, "b": 4})
    written(write, tmp_path / "test" / "a.json", {"c": 3, "d": 1})
    dataset = read(tmp_path, users=1, min_samples=3)
    assert dataset.users == ("b", "c", "d")
    assert len(dataset.test) == 4


def test_texts_keep_the_alphabet_of_all_users(write, tmp_path):
    users = {"a": (["abc"] * 5, list("abcab")), "b": (["xyz"] * 6, list("xyzxyz"))}
    dataset = read(write.leaf(tmp_path / "all_data.json", users), min_samples=6)
    assert dataset.users == ("b",)
    assert "".join(dataset.classes) == "abcxyz"
