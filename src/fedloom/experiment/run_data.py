"""What a run knows of its data, wherever the samples are: in this process, or at the sites."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedloom.core.identity import UsedData
from fedloom.core.simulation import Engine
from fedloom.data.client import Clients, OwnTestBatches
from fedloom.data.dataset import Dataset
from fedloom.data.own_test import own_test_rows
from fedloom.data.statistics import client_counts
from fedloom.experiment.build import (
    build_clients,
    load_data,
    named_data,
    own_test_batches,
    partition_rows,
)
from fedloom.experiment.identity import used_data
from fedloom.experiment.run_task import check_tokens
from fedloom.settings.config import Config


@dataclass(frozen=True)
class RunData:
    """The data of a run.

    dataset    the part of the data set that the settings keep. Where the samples are at the sites
               it has none: only their form, the classes and the normalisation.
    clients    the training samples by client, or as many clients that know only how many they have.
    own_test   the test samples by client, if models are scored on them.
    counts     training samples, clients by classes; a single column if samples have no class.
    used       what identifies the data.
    """

    dataset: Dataset
    clients: Clients
    own_test: OwnTestBatches | None
    counts: Tensor
    used: UsedData


@dataclass(frozen=True)
class RemoteFederation:
    """Clients at sites: what is known of their data, and the engine that reaches them."""

    data: RunData
    engine: Engine
    name: str


def local_data(config: Config, whole: Dataset | None = None) -> RunData:
    """The data in this process. whole: used instead of the data set that the settings name."""
    whole = whole or named_data(config.data.name)
    dataset = load_data(config, whole)
    rows = partition_rows(config, dataset)
    clients = build_clients(config, dataset, rows)
    check_tokens(config, clients)
    own_test = None
    if config.evaluate.on == "own":
        own_test = own_test_batches(config, dataset, own_test_rows(dataset, rows))
    counts = torch.from_numpy(client_counts(dataset, rows))
    return RunData(dataset, clients, own_test, counts, used_data(whole, rows))
