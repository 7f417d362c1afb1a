"""Averages of the clients' samples as FedMix would send them, as images to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data import augment
from fedloom.data.averages_plot import ImageGrid, denormalised
from fedloom.data.partition import check as check_partition
from fedloom.exchange.group_means import group_means, split_into_groups
from fedloom.experiment.build import build_clients, load_data, partition_rows
from fedloom.settings.config import Config, load

SIZES = (1, 5, 20, 0)  # samples per average; 0 averages all samples of a client
MAX_CLIENTS = 5


def averages_grid(raw: Mapping[str, Any]) -> tuple[Config, ImageGrid]:
    """The checked settings, and images: a row per client, a column per number of samples averaged.

    The clients are evenly spaced over all client numbers.
    """
    config = load(raw)
    check_partition(config.data.partition)
    augment.check(config.data.augment)
    dataset = load_data(config)
    if dataset.kind != "image":
        raise UserError(
            f"data '{dataset.name}' are of kind '{dataset.kind}', and averages can be shown of "
            "images only; choose image data"
        )
    clients = build_clients(config, dataset, partition_rows(config, dataset))
    shown = min(MAX_CLIENTS, len(clients))
    numbers = [i * len(clients) // shown for i in range(shown)]
    rows = []
    for number in numbers:
        data, key = clients[number], Key.root(config.seed).fold("gallery", number)
        groups = [split_into_groups(data.labels, size, "random", "keep", key)[0] for size in SIZES]
        x, _ = group_means(data, len(dataset.classes), groups)
        rows.append(denormalised(data.normalise, x).float().cpu())
    row_labels = [f"client {n}, {len(clients[n])} samples" for n in numbers]
    return config, ImageGrid(torch.stack(rows), [_size_label(s) for s in SIZES], row_labels)


def _size_label(size: int) -> str:
    if size == 0:
        return "all"
    return "1 sample" if size == 1 else f"{size} samples"
