"""The federation as a site knows it: all clients have numbers, and only its own have data."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from fedloom.core.errors import RunError, UserError
from fedloom.core.federation import Federation
from fedloom.deploy.site.data import SiteData
from fedloom.deploy.site.encode import encoded
from fedloom.deploy.site.memory import SiteMemory
from fedloom.deploy.site.trusted_code import trusted_config
from fedloom.deploy.terms import Agreement
from fedloom.experiment.build import build_clients, build_federation, own_test_batches
from fedloom.experiment.model_memory import check_memory
from fedloom.settings.config import Config

T = TypeVar("T")


@dataclass(frozen=True)
class AtThisSite(Sequence[T], Generic[T]):
    """What every client has, of which only those of this site are here.

    own: in the order of `numbers`, the site's clients. total: the number of all clients.
    """

    own: Sequence[T]
    numbers: tuple[int, ...]
    total: int

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, number: Any) -> Any:
        if number not in self.numbers:
            raise RunError(f"client {number} is not at this site")
        return self.own[self.numbers.index(number)]


def site_federation(
    agreement: Agreement, data: SiteData, trust: Sequence[str], memory: SiteMemory, secret: str
) -> tuple[Config, Federation]:
    """The settings, the model, the method and the site's own clients, as agreed."""
    config = trusted_config(_settings(agreement), trust, agreement.code, data.site)
    config = config.model_copy(update={"engine": "inprocess"})  # a site has no workers
    dataset = encoded(data, agreement)
    check_memory(config.model, dataset, getattr(torch, config.dtype))
    numbers = tuple(agreement.clients_of(data.site))
    train, test = (_rows(split.users, len(numbers)) for split in (dataset.train, dataset.test))
    own_test = None
    if config.evaluate.on == "own":
        batches = own_test_batches(config, dataset, test)
        own_test = AtThisSite(batches, numbers, len(agreement.clients))
    federation = build_federation(config, dataset, build_clients(config, dataset, train))
    own = AtThisSite(federation.clients, numbers, len(agreement.clients))
    return config, replace(
        federation, clients=own, own_test=own_test, test=(), keeper=memory, secret=secret
    )


def _settings(agreement: Agreement) -> Mapping[str, Any]:
    try:
        return tomllib.loads(agreement.settings)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"the settings of run '{agreement.run}' are not TOML: {error}") from None


def _rows(users: Any, clients: int) -> list[np.ndarray]:
    """The rows of each client of the site."""
    return [np.flatnonzero(users.numpy() == client) for client in range(clients)]
