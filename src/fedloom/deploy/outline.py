"""What the server knows of a deployment's data: their form and their sizes, and no sample."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor

from fedloom.core.errors import RunError, UserError
from fedloom.core.identity import DataIdentity, UsedData
from fedloom.data.client import Clients, OwnTestBatches
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.data.identity import json_sha256, split_sha256
from fedloom.deploy.terms import AgreedClient, Agreement
from fedloom.experiment.run_data import RunData


@dataclass(frozen=True)
class RemoteData:
    """The data of a client at a site: the server knows how many samples there are."""

    client: AgreedClient

    def __len__(self) -> int:
        return self.client.train

    def checksum(self) -> int:
        """What the site said; 32 bits, as that of samples in this process."""
        return int(self.client.checksum[:8], 16)

    @property
    def labels(self) -> Tensor:
        self._not_here()

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        self._not_here()

    def _not_here(self) -> NoReturn:
        raise RunError(
            f"the samples of client '{self.client.name}' are at site '{self.client.site}'; "
            "the server cannot read them"
        )


@dataclass(frozen=True)
class RemoteClients(Sequence[RemoteData]):
    """All clients of a deployment."""

    clients: tuple[AgreedClient, ...]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def sizes(self) -> np.ndarray:
        """Training samples per client."""
        return np.array([client.train for client in self.clients])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return RemoteClients(self.clients[index])
        return RemoteData(self.clients[index])


def run_data(agreement: Agreement, test: Dataset | None = None) -> RunData:
    """What a run at the server needs to know of its data.

    test: a data set of the server on whose test split models are evaluated. Without one they are
    evaluated at the sites, each on its own test samples.
    """
    scored_on = tomllib.loads(agreement.settings)["evaluate"]["on"]
    if (scored_on == "own") != (test is None):
        raise UserError(
            f"evaluate.on='{scored_on}': 'test' needs test data at the server, and 'own' uses "
            "none; set evaluate.on='own', or give the server a test set"
        )
    dataset = outline(agreement)
    if test is not None:
        _check_test_data(test, agreement)
        dataset = replace(dataset, test=test.test)
    clients = RemoteClients(agreement.clients)
    return RunData(
        dataset=dataset,
        clients=cast(Clients, clients),  # it has the sizes, and is asked for no sample
        own_test=None if test is not None else cast(OwnTestBatches, clients),
        counts=_counts(agreement),
        used=_used(agreement, test),
    )


def outline(agreement: Agreement) -> Dataset:
    """A data set of the agreed form without samples."""
    none = Split(
        torch.zeros(0, *agreement.shape, dtype=getattr(torch, agreement.dtype)),
        torch.zeros(0, dtype=torch.int64),
    )
    return Dataset(
        agreement.run,
        cast(Kind, agreement.kind),
        none,
        none,
        agreement.classes,
        agreement.mean,
        agreement.std,
        tuple(f"{client.site}/{client.name}" for client in agreement.clients),
    )


def _counts(agreement: Agreement) -> Tensor:
    """Training samples, clients by classes; zeros where a site does not share them."""
    unknown = (0,) * len(agreement.classes)
    return torch.tensor([client.class_counts or unknown for client in agreement.clients])


def _used(agreement: Agreement, test: Dataset | None) -> UsedData:
    """What identifies the data: the checksums that the sites sent."""
    clients = [[c.site, c.name, c.train, c.test, c.checksum] for c in agreement.clients]
    constants = [agreement.kind, agreement.mean, agreement.std, agreement.to_json()["columns"]]
    content = DataIdentity(
        train=json_sha256(["training samples at the sites", clients]),
        test=json_sha256(["test samples at the sites", clients]),
        normalisation=json_sha256(constants),
        classes=json_sha256(agreement.classes),
        users=json_sha256([client[:2] for client in clients]),
        train_samples=sum(client.train for client in agreement.clients),
        test_samples=sum(client.test for client in agreement.clients),
    )
    if test is not None:
        own = split_sha256(test.test)
        content = replace(content, test=own, test_samples=len(test.test))
    return UsedData(agreement.run, content, json_sha256([client[:3] for client in clients]))


def _check_test_data(test: Dataset, agreement: Agreement) -> None:
    for what, theirs, agreed in (
        ("kind", test.kind, agreement.kind),
        ("shape", test.shape, agreement.shape),
        ("type", str(test.test.x.dtype).removeprefix("torch."), agreement.dtype),
        ("classes", test.classes, agreement.classes),
    ):
        if theirs != agreed:
            raise UserError(
                f"the server's test data '{test.name}': their {what} is {theirs}, and {agreed} at "
                "the sites; use test data of the same form, or evaluate.on='own'"
            )
