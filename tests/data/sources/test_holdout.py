"""The test split that is held out if the data have none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.data.sources.holdout import held_out_mask

labels = st.lists(st.integers(0, 5), min_size=1, max_size=120)


def test_by_class_worked_by_hand():
    # class 0 starts at place 0, class 1 at place 1; places 4, 9, ... are held out
    y = np.array([0] * 10 + [1] * 10)
    assert np.flatnonzero(held_out_mask(y, None, 0.2, "")).tolist() == [4, 9, 13, 18]


def test_by_user_worked_by_hand():
    # user a in order of class: rows 1 3 0 2 at places 0 to 3; user b: rows 5 4 at places 1 and 2;
    # places 1 and 3 are held out
    y, users = np.array([1, 0, 1, 0, 1, 0]), np.array(list("aaaabb"))
    assert np.flatnonzero(held_out_mask(y, users, 0.5, "")).tolist() == [2, 3, 5]


def test_one_sample_per_class_and_user_leaves_no_class_out():
    users, y = np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20)
    test = held_out_mask(y, users, 0.2, "")
    assert np.bincount(y[test]).tolist() == [4] * 10
    assert np.bincount(users[test]).tolist() == [2] * 20


def test_tail_takes_the_end_of_each_text():
    users = np.array(list("abababababa"))  # six of a, five of b
    test = held_out_mask(np.zeros(11, int), users, 0.34, "", tail=True)
    assert np.flatnonzero(test).tolist() == [8, 9, 10]


@given(y=labels, share=st.floats(0.01, 0.99), tail=st.booleans(), people=st.integers(1, 9))
def test_each_user_gives_its_share_and_keeps_a_training_sample(y, share, tail, people):
    users = np.arange(len(y)) % people
    try:
        test = held_out_mask(np.array(y), users, share, "", tail)
    except UserError as error:
        assert "leaves no test sample" in str(error)
        return
    for user in range(min(people, len(y))):
        held_out = test[users == user]
        assert not held_out.all()
        assert abs(held_out.sum() - len(held_out) * share) < 2


@given(y=labels, share=st.sampled_from([0.1, 0.2, 0.25, 0.5]))
def test_each_class_gives_its_share_if_there_are_no_users(y, share):
    labels = np.array(y)
    try:
        test = held_out_mask(labels, None, share, "")
    except UserError:
        assert len(y) < 60, "with many samples there is always something to hold out"
        return
    for c in np.unique(labels):
        assert abs(test[labels == c].sum() - (labels == c).sum() * share) <= 1
