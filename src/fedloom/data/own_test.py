"""Which test samples belong to which client, where clients are users of the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset

REMEDY = "use data.partition='user' with data whose test split has users, or evaluate.on='test'"


def own_test_rows(dataset: Dataset, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The rows of the test split that belong to the users whom each client holds.

    rows: of the training split, by client. A client may be left without any.
    """
    train, test = dataset.train.users, dataset.test.users
    if train is None or test is None:
        raise UserError(f"evaluate.on='own': data '{dataset.name}' have no users; {REMEDY}")
    client_of = np.full(max(len(dataset.users), int(test.max()) + 1), -1)
    for client, own in enumerate(rows):
        users = np.unique(train.numpy()[own])
        if (client_of[users] >= 0).any():
            raise UserError(
                "evaluate.on='own': a user's samples are spread over several clients, so nobody "
                f"owns the user's test samples; {REMEDY}"
            )
        client_of[users] = client
    owner = client_of[test.numpy()]
    return [np.flatnonzero(owner == client) for client in range(len(rows))]
