"""Accuracy on the test samples of each user, against counting by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data.client import normaliser
from fedloom.data.dataset import Dataset, Split
from fedloom.data.per_user_accuracy import UserAccuracy, accuracy_per_user, group_by_size
from fedloom.models.registry import build

ROLES = ("chorus", "fool", "king", "ghost")


class SameAgain(nn.Module):
    """Predicts the last character again."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(x[:, -1], 3).float()


def text(rows: list[tuple[str, str, int]]) -> Split:
    """Samples as (characters, the next one, role)."""
    x = torch.tensor([["abc".index(c) for c in line] for line, _, _ in rows])
    return Split(
        x,
        torch.tensor(["abc".index(c) for _, c, _ in rows]),
        torch.tensor([role for *_, role in rows]),
    )


TRAIN = text([("ab", "b", 0)] * 3 + [("aa", "a", 1)] * 5 + [("ca", "c", 3)] * 9)
TEST = text(
    [("ab", "b", 1), ("bb", "b", 1), ("ca", "c", 3), ("ac", "c", 0), ("bc", "a", 1), ("cb", "a", 1)]
)
PLAYS = Dataset("plays", "text", TRAIN, TEST, ("a", "b", "c"), users=ROLES)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_next_character_accuracy_of_each_role(batch):
    scores = accuracy_per_user(Chain({"all": SameAgain()}), PLAYS, normaliser(PLAYS), batch)
    assert scores.users.tolist() == [0, 1, 3], "the king is not tested"
    assert scores.accuracy.tolist() == [1.0, 0.5, 0.0]
    assert scores.train_sizes.tolist() == [3, 5, 9]


def test_accuracies_of_all_roles_add_up_to_the_test_split():
    model = build(Spec("lstm", {"width": 5}), (2,), 3, Key.root(1)).eval()
    scores = accuracy_per_user(model, PLAYS, normaliser(PLAYS))
    with torch.inference_mode():
        right = model(TEST.x).argmax(1) == TEST.y
    sizes = torch.bincount(TEST.users)[scores.users]
    assert float((scores.accuracy * sizes).sum()) == pytest.approx(float(right.sum()))


def test_groups_by_size_with_the_bounds_of_the_paper():
    """Fewer than 100, 100 to 199, more than 199."""
    sizes = [99, 100, 199, 200, 350, 20]
    accuracy = torch.tensor([0.5, 0.2, 0.6, 0.9, 0.7, 0.1], dtype=torch.float64)
    few, some, many = group_by_size(
        UserAccuracy(torch.arange(6), accuracy, torch.tensor(sizes)), (100, 200)
    )
    assert (few.count, some.count, many.count) == (2, 2, 2)
    assert (few.mean, some.mean, many.mean) == pytest.approx((0.3, 0.4, 0.8))
    assert (few.std, some.std, many.std) == pytest.approx((0.2, 0.2, 0.1))
    nobody, *_ = group_by_size(UserAccuracy(torch.arange(6), accuracy, torch.tensor(sizes)), (10,))
    assert (nobody.count, nobody.mean, nobody.std) == (0, None, None)


def test_data_without_users_are_rejected():
    plain = Dataset(
        "plain", "text", Split(TRAIN.x, TRAIN.y), Split(TEST.x, TEST.y), ("a", "b", "c")
    )
    with pytest.raises(UserError, match="data 'plain' have no user ids"):
        accuracy_per_user(Chain({"all": SameAgain()}), plain, normaliser(plain))
