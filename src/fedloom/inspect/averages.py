"""Averages of the clients' data as the exchange would send them, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.averages_plot import ImageGrid, denormalised
from fedloom.exchange.averaged_data import group_means, split_into_groups
from fedloom.experiment.build import build_clients, load_data, partition_rows
from fedloom.experiment.prepare import check_names
from fedloom.settings.config import Config, load

SIZES = (1, 5, 20, 0)  # samples an average; 0 is all of a client's
CLIENTS = 5


def averages_grid(raw: Mapping[str, Any]) -> tuple[Config, ImageGrid]:
    """The settings, and of some clients from all over one average of each size."""
    config = load(raw)
    check_names(config)
    dataset = load_data(config)
    if dataset.kind != "image":
        raise UserError(
            f"data '{dataset.name}' are a {dataset.kind}, and averages are shown of images; take other data"
        )
    clients = build_clients(config, dataset, partition_rows(config, dataset))
    chosen = [
        i * len(clients) // min(CLIENTS, len(clients)) for i in range(min(CLIENTS, len(clients)))
    ]
    rows = []
    for number in chosen:
        data, key = clients[number], Key.root(config.seed).fold("gallery", number)
        groups = [split_into_groups(data.labels, size, "random", "keep", key)[0] for size in SIZES]
        x, _ = group_means(data, len(dataset.classes), groups)
        rows.append(denormalised(data.normalise, x).float().cpu())
    columns = [f"{size} samples" if size > 1 else "1 sample" if size else "all" for size in SIZES]
    return config, ImageGrid(
        torch.stack(rows), columns, [f"client {n}, {len(clients[n])} samples" for n in chosen]
    )
