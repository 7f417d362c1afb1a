"""Validation data: a share of every client's training samples, held out to choose settings by.

They take the place of the test split: what is chosen by them has not seen the test data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.dataset import Dataset, Split

Rows = list[np.ndarray]


def hold_out(rows: Sequence[np.ndarray], share: float, key: Key) -> tuple[Rows, Rows]:
    """Every client's rows in two parts: those it trains on, and the share held out.

    The share is drawn at random and rounded down; below 1, every client keeps a sample to train on.
    """
    trained, held = [], []
    for client, own in enumerate(rows):
        draws = np.random.default_rng(key.fold(client).seed)
        # 0.29 * 100 is a little below 29, hence the 1e-9
        is_held = np.zeros(len(own), dtype=bool)
        is_held[draws.permutation(len(own))[: int(share * len(own) + 1e-9)]] = True
        trained.append(own[~is_held])
        held.append(own[is_held])
    return trained, held


def evaluated_on(dataset: Dataset, held: Sequence[np.ndarray]) -> Dataset:
    """The data set with the held-out training rows of all clients as its test split."""
    chosen = torch.from_numpy(np.sort(np.concatenate(held)).astype(np.int64))
    if not len(chosen):
        raise UserError(
            "data.validation holds out no sample: every client has too few; "
            "raise it, or lower data.clients"
        )
    train = dataset.train
    users = None if train.users is None else train.users[chosen]
    return replace(dataset, test=Split(train.x[chosen], train.y[chosen], users))
