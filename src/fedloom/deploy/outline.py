"""What the server knows of the sites' data: their form and their sizes, and not one sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor

from fedloom.core.errors import RunError
from fedloom.core.identity import DataIdentity, UsedData
from fedloom.data.dataset import Dataset, Kind, Split
from fedloom.deploy.terms import AgreedClient, Agreement
from fedloom.experiment.run_data import RunData


@dataclass(frozen=True)
class RemoteClient:
    """A client whose samples are at its site."""

    agreed: AgreedClient

    def __len__(self) -> int:
        return self.agreed.train

    @property
    def labels(self) -> Tensor:
        self._refuse()

    def batch(self, *arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:
        self._refuse()

    def checksum(self) -> int:
        """Another number if the samples have changed, from what the site reported."""
        return int(self.agreed.checksum[:8], 16)

    def _refuse(self) -> NoReturn:
        raise RunError(
            f"the samples of client '{self.agreed.name}' are at site '{self.agreed.site}', "
            "and never leave it"
        )


@dataclass(frozen=True)
class RemoteClients(Sequence[RemoteClient]):
    """All clients of a deployment."""

    agreed: tuple[AgreedClient, ...]

    def __len__(self) -> int:
        return len(self.agreed)

    @property
    def sizes(self) -> np.ndarray:
        """Training samples per client."""
        return np.array([client.train for client in self.agreed])

    def __getitem__(self, index: Any) -> Any:
        chosen = self.agreed[index]
        return RemoteClients(chosen) if isinstance(index, slice) else RemoteClient(chosen)


class RemoteTest(Sequence[Any]):
    """Stands for the clients' own test samples, which are at the sites."""

    def __init__(self, clients: int) -> None:
        self.clients = clients

    def __len__(self) -> int:
        return self.clients

    def __getitem__(self, index: Any) -> NoReturn:
        raise RunError("the test samples of clients are at their sites, and never leave them")


def run_data(agreement: Agreement) -> RunData:
    """The data of a run as the server knows them."""
    empty = Split(
        torch.zeros((0, *agreement.shape), dtype=getattr(torch, agreement.dtype)),
        torch.zeros(0, dtype=torch.int64),
    )
    dataset = Dataset(
        agreement.run,
        cast(Kind, agreement.kind),
        empty,
        empty,
        agreement.classes,
        agreement.mean,
        agreement.std,
        tuple(f"{client.site}/{client.name}" for client in agreement.clients),
    )
    clients = RemoteClients(agreement.clients)
    counts = torch.tensor([_counts(client, agreement) for client in agreement.clients])
    return RunData(
        dataset, cast(Any, clients), cast(Any, RemoteTest(len(clients))), counts, _used(agreement)
    )


def _counts(client: AgreedClient, agreement: Agreement) -> list[int]:
    return list(client.class_counts or [0] * len(agreement.classes))


def _used(agreement: Agreement) -> UsedData:
    """What identifies the data: the checksums that the sites reported, and what was agreed on."""

    def checksum(value: Any) -> str:
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()

    clients = [asdict(client) for client in agreement.clients]
    content = DataIdentity(
        train=checksum([[c["train"], c["checksum"]] for c in clients]),
        test=checksum([[c["test"], c["checksum"]] for c in clients]),
        normalisation=checksum(
            [agreement.kind, agreement.mean, agreement.std, [asdict(c) for c in agreement.columns]]
        ),
        classes=checksum(agreement.classes),
        users=checksum([[c["site"], c["name"]] for c in clients]),
        train_samples=sum(c["train"] for c in clients),
        test_samples=sum(c["test"] for c in clients),
    )
    return UsedData(agreement.run, content, checksum([c["train"] for c in clients]))
