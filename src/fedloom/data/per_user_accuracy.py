"""How one model does on each user's own test samples: on every writer's letters, on the next characters of every role.

A score by class cannot tell this, for two users of the same labels may be told with very different ease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.evaluate import count_correct
from fedloom.data.client import EvaluationBatches, Normaliser
from fedloom.data.dataset import Dataset, Split


@dataclass(frozen=True)
class Local:
    """Accuracy by user, in the order of their numbers; users: who has test samples at all. trained: their training samples."""

    users: Tensor
    accuracy: Tensor
    trained: Tensor


def local(chain: Chain, dataset: Dataset, normalise: Normaliser, batch: int = 100) -> Local:
    """The model on the test samples of every user that has some."""
    users, scores = zip(*_scored(chain, dataset, normalise, batch), strict=True)
    trained = torch.bincount(owners(dataset)[0], minlength=len(dataset.users))
    return Local(
        torch.tensor(users), torch.tensor(scores, dtype=torch.float64), trained[list(users)]
    )


def owners(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """Whose the training samples are, and whose the test samples."""
    if dataset.train.users is None or dataset.test.users is None:
        raise UserError(
            f"the data '{dataset.name}' do not say whose sample is whose, so nobody has test samples of their own"
        )
    return dataset.train.users, dataset.test.users


def _scored(
    chain: Chain, dataset: Dataset, normalise: Normaliser, batch: int
) -> Iterator[tuple[int, float]]:
    _, whose = owners(dataset)
    for user in torch.unique(whose).tolist():
        memories = whose == user
        own = EvaluationBatches(
            Split(dataset.test.x[memories], dataset.test.y[memories]), normalise, batch
        )
        yield user, count_correct(chain, own, len(dataset.classes)).accuracy


@dataclass(frozen=True)
class Group:
    """The users of one range of sizes: how many, and mean and standard deviation of their accuracies; None for nobody."""

    count: int
    mean: float | None
    std: float | None


def by_size(found: Local, bounds: Sequence[int]) -> list[Group]:
    """Users grouped by their training samples: fewer than the first bound, then fewer than the next, then all others."""
    place = torch.bucketize(found.trained, torch.tensor(bounds), right=True)
    return [_group(found.accuracy[place == number]) for number in range(len(bounds) + 1)]


def _group(scores: Tensor) -> Group:
    if not len(scores):
        return Group(0, None, None)
    return Group(len(scores), float(scores.mean()), float(scores.std(unbiased=False)))
