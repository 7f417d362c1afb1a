"""Accuracy of a run's global model on each user's own test samples (data/per_user_accuracy.py).

For example on every writer's letters, or on the next characters of every role in a play.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from fedloom.core.errors import UserError
from fedloom.core.job import build_isolated
from fedloom.data.client import place
from fedloom.data.dataset import Split
from fedloom.data.per_user_accuracy import (
    UserAccuracy,
    accuracy_per_user,
    group_by_size,
    sample_users,
)
from fedloom.experiment.reopen import ReopenedRun

GROUP_BOUNDS = (100, 200)  # training samples, as in the columns of FedMix's Table 13


def accuracy_by_user(run: ReopenedRun) -> dict[str, Any]:
    """Over the users whose data the clients train on: each user, all, and by training samples."""
    scores, names = _score_users(run), run.prepared.dataset.users
    per_user = zip(
        scores.users.tolist(), scores.train_sizes.tolist(), scores.accuracy.tolist(), strict=True
    )
    return {
        "mean": float(scores.accuracy.mean()),
        "std": float(scores.accuracy.std(unbiased=False)),
        "lowest": float(scores.accuracy.min()),
        "groups": _groups(scores),
        "users": [
            {"user": names[user], "training_samples": samples, "accuracy": accuracy}
            for user, samples, accuracy in per_user
        ],
    }


def _groups(scores: UserAccuracy) -> list[dict[str, Any]]:
    """Users grouped by their number of training samples; mean and std are None without users."""
    lower, upper = (0, *GROUP_BOUNDS), (*GROUP_BOUNDS, None)
    return [
        {
            "min_training_samples": low,
            "max_training_samples": None if high is None else high - 1,
            "users": group.count,
            "mean": group.mean,
            "std": group.std,
        }
        for low, high, group in zip(lower, upper, group_by_size(scores, GROUP_BOUNDS), strict=True)
    ]


def _score_users(run: ReopenedRun) -> UserAccuracy:
    """The accuracy of each user who has both training samples in the run and test samples."""
    prepared, dataset = run.prepared, run.prepared.dataset
    train_users, test_users = sample_users(dataset)
    used = train_users[prepared.clients.rows.cpu()]
    training_samples = torch.bincount(used, minlength=len(dataset.users))
    has_trained = training_samples[test_users] > 0
    if not bool(has_trained.any()):
        raise UserError(
            f"data '{dataset.name}' have no test samples of the users that the run trains on; "
            "leave out the part 'local'"
        )
    x, y, users = (t[has_trained] for t in (dataset.test.x, dataset.test.y, test_users))
    test = place(Split(x, y, users), prepared.clients.rows.device)
    chain = build_isolated(prepared.simulation.federation.build)
    chain.load_state_dict(run.state.params)
    scores = accuracy_per_user(
        chain,
        replace(dataset, test=test),
        prepared.clients.normalise,
        prepared.config.evaluate.batch,
    )
    return replace(scores, train_sizes=training_samples[scores.users])
