"""Which engine plays the clients, and how a worker in another process comes to the same federation."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
from fedloom.engines.calibrate import Timing, calibrated
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.inprocess import InProcess
from fedloom.engines.pool import Pool
from fedloom.engines.ray import RayCluster
from fedloom.engines.vectorised import Vectorised
from fedloom.experiment.build import build_federation, resolve_auto, resolve_device
from fedloom.models.summary import rough_macs
from fedloom.runs.checkpoint import newest
from fedloom.runs.folder import CHECKPOINT
from fedloom.settings.config import Config, load

Name = Literal["inprocess", "pool", "vectorised", "ray"]
PARALLEL_MACS = 3e10  # multiply-accumulates of a run, some five seconds on one core, above which workers pay for their start
MARGIN = 0.8  # of the exact engine's time: the vectorised engine is close but not the same to the bit, and must be clearly faster
CLIENTS, STEPS, SHORT = (
    32,
    3,
    PARALLEL_MACS / 10,
)  # that a calibration plays at most; the last in multiply-accumulates of a turn


@dataclass(frozen=True)
class EngineChoice:
    """An engine, and what a user should know of why it was taken."""

    engine: Name
    why: str = ""


def open_engine(
    config: Config,
    dataset: Dataset,
    federation: Federation,
    clients: Clients,
    model: Chain,
    pool: Pool | RayCluster | None = None,
    fork_server: ForkServer | None = None,
) -> tuple[Federation, Engine, EngineChoice]:
    """The engine of the settings, and the federation as this process sees it from then on.

    A pool that is there is used again; a new one has its workers from the nursery, or from its own.
    """
    choice = choose_engine(config, dataset, federation, clients, model)
    if choice.engine == "inprocess":
        return federation, InProcess(federation), choice
    if choice.engine == "vectorised":
        return (
            federation,
            Vectorised(_side_by_side(config, dataset, clients), InProcess(federation)),
            choice,
        )
    if not _on_cpu(config):
        raise UserError(
            f"engine '{choice.engine}' is for the cores of CPUs, not for device '{config.device}'; take --engine inprocess"
        )
    pool = pool or (
        RayCluster(config.workers)
        if choice.engine == "ray"
        else Pool(worker_count(config), fork_server)
    )
    try:
        shared, recipe = _shared(pool, config, dataset, clients)
        pool.start(recipe)
    except BaseException:
        pool.close()
        raise
    return build_federation(config, *shared), pool, choice


def choose_engine(
    config: Config, dataset: Dataset, federation: Federation, clients: Clients, model: Chain
) -> EngineChoice:
    """The engine by its name; for "auto", where there is enough to do, the fastest by calibration."""
    if config.engine != "auto":
        return EngineChoice(config.engine)
    cohort = min(config.sample.args.get("per_round", len(clients)), len(clients))
    each = config.train.epochs * float(np.mean(clients.sizes)) / config.train.batch
    steps = math.ceil(each if config.train.steps is None else config.train.steps)
    one = (
        3 * rough_macs(model, dataset.shape) * config.train.batch
    )  # backward costs twice a forward
    if not _on_cpu(config) or one * steps * cohort * config.rounds <= PARALLEL_MACS:
        return EngineChoice("inprocess")
    named = config.model_dump(mode="json", include={"method", "model", "dtype"})
    facts = {
        **named,
        "shape": dataset.shape,
        "batch": config.train.batch,
        "cohort": cohort,
        "steps": steps,
    }
    few = max(1, min(cohort, CLIENTS, int(SHORT / (one * STEPS))))
    timing = calibrated(
        facts, federation, _side_by_side(config, dataset, clients), few, min(steps, STEPS)
    )
    return _fastest(timing, worker_count(config))


def _side_by_side(config: Config, dataset: Dataset, clients: Clients) -> Federation:
    """The federation as the vectorised engine plays it: weights that are stacked lie as torch lays them."""
    return build_federation(config.model_copy(update={"layout": "contiguous"}), dataset, clients)


def _fastest(found: Timing | str, workers: int) -> EngineChoice:
    """The vectorised engine, if it is clearly ahead of the clients shared out among the workers."""
    exact: Name = "pool" if workers > 1 else "inprocess"
    if isinstance(found, str):
        return EngineChoice(exact, f"not vectorised, since {found}")
    figures = f"calibrated: vectorised {found.ratio:.2f} of in-process, pool of {workers} {1 / workers:.2f}"
    if found.ratio > MARGIN / workers:
        return EngineChoice(exact, figures)
    return EngineChoice(
        "vectorised", f"{figures}; within 1e-5 of the exact engines, not the same bits"
    )


def resume_config(config: Config, path: Path) -> Config:
    """The settings of a run that goes on in its folder: what "auto" has taken so far, it takes to the end."""
    manifest = (
        newest(path / CHECKPOINT)
        if config.engine == "auto" and (path / CHECKPOINT).is_dir()
        else None
    )
    return (
        config
        if manifest is None
        else config.model_copy(update={"engine": manifest.extra.get("engine", config.engine)})
    )


def worker_count(config: Config) -> int:
    """As many as asked for, or as there are cores this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return config.workers or usable or 1


def _on_cpu(config: Config) -> bool:
    return resolve_device(config.device).type == "cpu"


def _shared(
    pool: Pool | RayCluster, config: Config, dataset: Dataset, clients: Clients
) -> tuple[tuple[Dataset, Clients], dict[str, Any]]:
    """The data in the pool's memory, as this process sees them there, and what a worker needs to see the same."""
    tensors = {
        "train.x": dataset.train.x,
        "train.y": dataset.train.y,
        "test.x": dataset.test.x,
        "test.y": dataset.test.y,
    }
    tensors |= {
        "rows": clients.rows,
        "starts": _tensor(clients.starts),
        "stops": _tensor(clients.stops),
    }
    layout, views = pool.share(tensors)
    facts = {n: getattr(dataset, n) for n in ("name", "kind", "classes", "mean", "std")}
    recipe = {
        "build": "fedloom.experiment.open_engine:federation",
        "settings": resolve_auto(config).text(),
        "layout": layout,
        "dataset": facts,
    }
    return _seen(config, facts, views), recipe


def federation(recipe: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Federation:
    """The federation of a worker: the same settings, and the data where the pool has put them."""
    config = load(tomllib.loads(recipe["settings"]))
    return build_federation(config, *_seen(config, recipe["dataset"], tensors))


def _seen(
    config: Config, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[Dataset, Clients]:
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
