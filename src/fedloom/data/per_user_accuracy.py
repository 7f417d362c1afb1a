"""The accuracy of one model on the test samples of each user, e.g. of every writer or every role.

Accuracy by class cannot show this: two users with the same labels may differ in difficulty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.evaluate import count_correct
from fedloom.data.client import EvaluationBatches, Normaliser
from fedloom.data.dataset import Dataset, Split


@dataclass(frozen=True)
class UserAccuracy:
    """Accuracy by user, for the users that have test samples, in the order of their numbers."""

    users: Tensor  # user numbers
    accuracy: Tensor
    train_sizes: Tensor  # their numbers of training samples


def accuracy_per_user(
    chain: Chain, dataset: Dataset, normalise: Normaliser, batch: int = 100
) -> UserAccuracy:
    """Evaluate the model on the test samples of every user that has some."""
    train_users, test_users = sample_users(dataset)
    users = torch.unique(test_users)
    scores = []
    for user in users.tolist():
        rows = test_users == user
        samples = Split(dataset.test.x[rows], dataset.test.y[rows])
        batches = EvaluationBatches(samples, normalise, batch)
        scores.append(count_correct(chain, batches, len(dataset.classes)).accuracy)
    train_sizes = torch.bincount(train_users, minlength=len(dataset.users))
    return UserAccuracy(users, torch.tensor(scores, dtype=torch.float64), train_sizes[users])


def sample_users(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """The user of each training sample and of each test sample."""
    if dataset.train.users is None or dataset.test.users is None:
        raise UserError(
            f"data '{dataset.name}' have no user ids for both splits, "
            "so accuracy per user cannot be measured; use data with users"
        )
    return dataset.train.users, dataset.test.users


@dataclass(frozen=True)
class SizeGroup:
    """Users in one range of training set sizes: count, mean and std of accuracy (None if empty)."""

    count: int
    mean: float | None
    std: float | None


def group_by_size(scores: UserAccuracy, bounds: Sequence[int]) -> list[SizeGroup]:
    """Users grouped by training samples: below the first bound, below the next, ..., the rest."""
    group = torch.bucketize(scores.train_sizes, torch.tensor(bounds), right=True)
    return [_size_group(scores.accuracy[group == number]) for number in range(len(bounds) + 1)]


def _size_group(accuracy: Tensor) -> SizeGroup:
    if not len(accuracy):
        return SizeGroup(0, None, None)
    return SizeGroup(len(accuracy), float(accuracy.mean()), float(accuracy.std(unbiased=False)))
