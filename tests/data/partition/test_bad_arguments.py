"""Impossible partitions raise an error with a remedy, before anything is drawn."""

from __future__ import annotations

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data import longtail
from fedloom.data.partition import check, partition

LABELS = np.arange(100) % 10


@pytest.mark.parametrize(
    ("spec", "clients", "message"),
    [
        (Spec("dirichelt"), 5, "did you mean 'dirichlet'"),
        (Spec("dirichlet", {"alpa": 1.0}), 5, "did you mean 'alpha'"),
        (Spec("dirichlet", {"alpha": 0.0}), 5, "above 0"),
        (Spec("dirichlet", {"alpha": float("inf")}), 5, "use iid"),
        (
            Spec("dirichlet", {"alpha": 1.0, "legacy_seed": -1}),
            5,
            "legacy_seed=-1 must be at least 0",
        ),
        (Spec("dirichlet", {"labels": []}), 5, "no parameter 'labels'"),
        (Spec("dirichlet"), 11, "need 110 samples, but the data have 100; use at most 10 clients"),
        (Spec("iid"), 101, "need 101 samples"),
        (Spec("iid"), 0, "clients=0 must be at least 1"),
        (Spec("iid"), None, "'user' only"),
        (Spec("shards"), 51, "need 102 samples"),
        (Spec("dirichlet-balanced"), 101, "need 101 samples"),
        (Spec("dirichlet-rounded", {"alpha": 0.001}), 20, "use a larger alpha"),
        (Spec("classes", {"classes": 11}), 5, "more than the 10 classes"),
        (Spec("classes", {"classes": 1}), 5, "use classes=2 or more clients"),
        (Spec("classes", {"classes": 10}), 11, "class 0 has 10 samples for 11 clients"),
        (Spec("user"), 5, "the data have no user ids"),
    ],
)
def test_error_message(spec, clients, message):
    with pytest.raises(UserError) as caught:
        partition(spec, LABELS, clients, Key.root(0))
    assert message in str(caught.value)


def test_all_problems_are_reported_at_once():
    with pytest.raises(UserError) as caught:
        check(Spec("dirichlet", {"alpha": -1.0, "min_size": 0, "legacy_seed": 0.5}))
    assert all(
        name in str(caught.value)
        for name in ("3 problems", "alpha=-1.0", "min_size=0", "legacy_seed=0.5")
    )


def test_more_clients_than_users_are_rejected():
    with pytest.raises(
        UserError,
        match=r"clients=5, but 4 users have at least 1 samples; "
        r"use at most 4 clients, or clients=0",
    ):
        partition(Spec("user"), LABELS, 5, Key.root(0), np.arange(100) // 25)
    with pytest.raises(UserError, match=r"0 users have at least 26 samples; .* smaller min_size"):
        partition(Spec("user", {"min_size": 26}), LABELS, 0, Key.root(0), np.arange(100) // 25)


@pytest.mark.parametrize(
    "labels", [np.zeros((2, 2), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(3)]
)
def test_labels_must_be_a_one_dimensional_array_of_integers(labels):
    with pytest.raises(UserError, match="non-empty one-dimensional array of integers"):
        partition(Spec("iid"), labels, 1, Key.root(0))


@pytest.mark.parametrize(
    ("factor", "message"), [(0.5, "at least 1"), (float("nan"), "at least 1"), (11, "below 10")]
)
def test_long_tails_out_of_range(factor, message):
    with pytest.raises(UserError, match=message):
        longtail.kept_rows(LABELS, factor, np.random.RandomState(0))
