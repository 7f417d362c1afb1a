"""The simulated counterpart of a deployment: the samples of all sites in one place.

For tests, and for people who may see all data. A site holds out its test samples by itself, as
if its files were all there are, so reading the files of all sites as one folder would hold out
others. Here every client has the very tensors that it has at its site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from fedloom.data.dataset import Dataset, Split
from fedloom.deploy.site.data import SiteData
from fedloom.deploy.site.encode import encoded
from fedloom.deploy.terms import Agreement


def simulated(agreement: Agreement, sites: Sequence[SiteData]) -> Dataset:
    """One data set whose users are the clients, in the order of their numbers.

    Run it with the settings of the agreement, whose data.partition is 'user'.
    """
    by_site = {data.site: encoded(data, agreement) for data in sites}
    parts = [by_site[site] for site in agreement.sites]
    first_numbers = np.cumsum([0, *(len(part.users) for part in parts[:-1])]).tolist()
    train = _joined([part.train for part in parts], first_numbers)
    test = _joined([part.test for part in parts], first_numbers)
    names = tuple(f"{client.site}/{client.name}" for client in agreement.clients)
    return replace(parts[0], name=agreement.run, train=train, test=test, users=names)


def _joined(splits: Sequence[Split], first_numbers: Sequence[int]) -> Split:
    users = [
        split.users + first
        for split, first in zip(splits, first_numbers, strict=True)
        if split.users is not None
    ]
    x, y = (torch.cat([getattr(split, name) for split in splits]) for name in ("x", "y"))
    return Split(x, y, torch.cat(users))
