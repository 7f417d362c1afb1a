"""How a run's model does on each user's own test samples (data/per_user_accuracy.py): every writer's letters, every role's next characters."""

from __future__ import annotations

from dataclasses import asdict, replace
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

BOUNDS = (100, 200)  # training samples, as in the columns of FedMix's Table 13


def by_user(run: ReopenedRun) -> dict[str, Any]:
    """The server's model on those it was trained on: each by itself, all together, and in groups of their training samples."""
    found, names = _found(run), run.prepared.dataset.users
    edges = [0, *BOUNDS, None]
    groups = zip(edges, edges[1:], group_by_size(found, BOUNDS), strict=False)
    each = zip(
        found.users.tolist(), found.train_sizes.tolist(), found.accuracy.tolist(), strict=True
    )
    return {
        "mean": float(found.accuracy.mean()),
        "std": float(found.accuracy.std(unbiased=False)),
        "least": float(found.accuracy.min()),
        "groups": [{"from": low, "below": high, **asdict(group)} for low, high, group in groups],
        "users": [
            {"user": names[user], "trained": trained, "accuracy": accuracy}
            for user, trained, accuracy in each
        ],
    }


def _found(run: ReopenedRun) -> UserAccuracy:
    prepared, dataset = run.prepared, run.prepared.dataset
    train, whose = sample_users(dataset)
    trained = torch.bincount(train[prepared.clients.rows.cpu()], minlength=len(dataset.users))
    memories = trained[whose] > 0
    if not bool(memories.any()):
        raise UserError(
            f"the data '{dataset.name}' have no test samples of those who train; leave out the part 'local'"
        )
    test = place(
        Split(dataset.test.x[memories], dataset.test.y[memories], whose[memories]),
        prepared.clients.rows.device,
    )
    chain = build_isolated(prepared.simulation.federation.build)
    chain.load_state_dict(run.state.params)
    found = accuracy_per_user(
        chain,
        replace(dataset, test=test),
        prepared.clients.normalise,
        prepared.config.evaluate.batch,
    )
    return replace(found, train_sizes=trained[found.users])
