"""The synthetic crowd: any number of users, at most two classes each, always the same data."""

from __future__ import annotations

import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.data import store, synthetic


def test_a_crowd_is_loaded_by_name_and_is_always_the_same() -> None:
    dataset, again = store.load("crowd-300"), store.load("crowd-300")
    assert (dataset.kind, dataset.shape, len(dataset.classes), len(dataset.users)) == (
        "table",
        (20,),
        10,
        300,
    )
    assert torch.equal(dataset.train.x, again.train.x)
    assert not torch.equal(dataset.train.x[:12], store.load("crowd-301").train.x[:12])


def test_every_user_has_its_samples_of_at_most_two_classes() -> None:
    train = store.load("crowd-300").train
    assert torch.bincount(train.users).tolist() == [12] * 300
    classes = [len(set(train.y[train.users == u].tolist())) for u in range(300)]
    assert set(classes) == {1, 2}


def test_classes_can_be_told_apart() -> None:
    train, test = store.load("crowd-2000").train, store.load("crowd-2000").test
    centres = torch.stack([train.x[train.y == c].mean(0) for c in range(10)])
    nearest = torch.cdist(test.x, centres).argmin(1)
    assert (nearest == test.y).double().mean() > 0.8


@pytest.mark.parametrize("name", ["crowd-0", "crowd-", "crowd-01", "crowd-99999999"])
def test_names_that_are_not_a_crowd_are_rejected(name: str) -> None:
    assert synthetic.user_count(name) is None
    with pytest.raises(UserError, match="no data set"):
        store.load(name)


def test_the_name_is_reserved(tmp_path) -> None:
    with pytest.raises(UserError, match="is built into fedloom"):
        store.add("crowd-5", tmp_path)


@pytest.mark.parametrize("users", [1, 16, 17, 40, 63])
def test_a_crowd_drawn_in_pieces_is_the_one_drawn_at_once(
    users: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = synthetic.load(users).train
    monkeypatch.setattr(synthetic, "DRAWN_AT_ONCE", 1)
    in_pieces = synthetic.load(users).train
    assert len(synthetic._pieces(users, 12)) == max(1, users // 16)
    assert torch.equal(in_pieces.x, at_once.x) and torch.equal(in_pieces.y, at_once.y)
