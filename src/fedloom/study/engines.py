"""Which engine plays the clients, and how a worker in another process comes to the same federation."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.client import Federation
from fedloom.core.errors import UserError
from fedloom.core.round import Engine
from fedloom.data import augment
from fedloom.data.client import Clients, normaliser
from fedloom.data.dataset import Dataset, Split
from fedloom.engines.cluster import Cluster
from fedloom.engines.inprocess import InProcess
from fedloom.engines.pool import Pool
from fedloom.engines.vectorised import Vectorised
from fedloom.models.summary import summary
from fedloom.study.config import Config, load
from fedloom.study.parts import device_of, federation_of

WORTH = 3e10  # multiply-accumulates of a run, some five seconds on one core, above which workers pay for their start


def open_engine(
    config: Config, dataset: Dataset, federation: Federation, clients: Clients, model: Chain, pool: Pool | Cluster | None = None
) -> tuple[Federation, Engine]:
    """The engine of the settings, and the federation as this process sees it from then on; a pool that is there is used again."""
    engine = chosen(config, dataset, clients, model)
    if engine == "inprocess":
        return federation, InProcess(federation)
    if engine == "vectorised":
        return federation, Vectorised(federation, InProcess(federation))
    if not _on_cpu(config):
        raise UserError(f"engine '{engine}' is for the cores of CPUs, not for device '{config.device}'; take --engine inprocess")
    pool = pool or (Cluster(config.workers) if engine == "ray" else Pool(workers_of(config)))
    try:
        shared, recipe = _shared(pool, config, dataset, clients)
        pool.start(recipe)
    except BaseException:
        pool.close()
        raise
    return federation_of(config, *shared), pool


def chosen(config: Config, dataset: Dataset, clients: Clients, model: Chain) -> Literal["inprocess", "pool", "vectorised", "ray"]:
    """The engine by its name; for "auto", the pool where there is more than one core and enough to do."""
    if config.engine != "auto":
        return config.engine
    if workers_of(config) == 1 or not _on_cpu(config):
        return "inprocess"
    cohort = config.sample.args.get("per_round", len(clients))
    passes = (
        config.train.epochs * float(np.mean(clients.sizes))
        if config.train.steps is None
        else config.train.steps * config.train.batch
    )
    work = 3 * summary(model, dataset.shape).macs * config.rounds * cohort * passes  # backward costs twice a forward
    return "pool" if work > WORTH else "inprocess"


def workers_of(config: Config) -> int:
    """As many as asked for, or as there are cores this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return config.workers or usable or 1


def _on_cpu(config: Config) -> bool:
    return device_of(config.device).type == "cpu"


def _shared(
    pool: Pool | Cluster, config: Config, dataset: Dataset, clients: Clients
) -> tuple[tuple[Dataset, Clients], dict[str, Any]]:
    """The data in the pool's memory, as this process sees them there, and what a worker needs to see the same."""
    tensors = {"train.x": dataset.train.x, "train.y": dataset.train.y, "test.x": dataset.test.x, "test.y": dataset.test.y}
    tensors |= {"rows": clients.rows, "starts": _tensor(clients.starts), "stops": _tensor(clients.stops)}
    layout, views = pool.share(tensors)
    facts = {n: getattr(dataset, n) for n in ("name", "kind", "classes", "mean", "std")}
    recipe = {"build": "fedloom.study.engines:federation", "settings": config.text(), "layout": layout, "dataset": facts}
    return _seen(config, facts, views), recipe


def federation(recipe: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Federation:
    """The federation of a worker: the same settings, and the data where the pool has put them."""
    config = load(tomllib.loads(recipe["settings"]))
    return federation_of(config, *_seen(config, recipe["dataset"], tensors))


def _seen(config: Config, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[Dataset, Clients]:
    train, test = (Split(tensors[f"{part}.x"], tensors[f"{part}.y"]) for part in ("train", "test"))
    plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in facts.items()}
    dataset = Dataset(train=train, test=test, **plain)
    clients = Clients(
        split=train,
        rows=tensors["rows"],
        starts=tensors["starts"].numpy(),
        stops=tensors["stops"].numpy(),
        normalise=normaliser(dataset, getattr(torch, config.dtype)),
        augment=augment.build(config.data.augment),
    )
    return dataset, clients


def _tensor(numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers.astype(np.int64))
