"""Open the engine of the settings for an experiment, and build its federation in a worker."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation
from fedloom.core.simulation import Engine
from fedloom.core.user_code import short_reference
from fedloom.data import augment
from fedloom.data.augment import Augment
from fedloom.data.client import Clients, Normaliser, OwnTestBatches, normaliser, place
from fedloom.data.dataset import Dataset, Split
from fedloom.engines import registry
from fedloom.engines.choose import EngineChoice, WorkEstimate, fastest_engine
from fedloom.engines.registry import AUTO, EngineEntry
from fedloom.engines.workload import Recipe, Workload, usable_cores
from fedloom.experiment.build import (
    NO_VALUES,
    Values,
    build_federation,
    resolve_auto,
    resolve_device,
    server_device,
    worker_devices,
)
from fedloom.experiment.model_checks import one_sample
from fedloom.models.summary import rough_macs
from fedloom.runs.checkpoint import newest_manifest
from fedloom.runs.folder_layout import CHECKPOINT
from fedloom.settings.config import Config, load

if TYPE_CHECKING:
    from fedloom.engines.forkserver import ForkServer

WORKERS_PER_CORE = 4  # more processes than that only take turns


def open_engine(
    config: Config,
    dataset: Dataset,
    federation: Federation,
    clients: Clients,
    model: Chain,
    pool: Engine | None = None,
    fork_server: ForkServer | None = None,
    values: Values = NO_VALUES,
) -> tuple[Federation, Engine, EngineChoice]:
    """Open the engine of the settings; the federation as this process sees it from then on.

    pool: an engine of an earlier run, whose workers are used again. fork_server: where new workers
    come from. values: objects without an importable name, by "python:NAME"; with any of them,
    clients run in this process.
    """
    workload = workload_of(config, dataset, federation, clients, pool, fork_server, values)
    choice = choose_engine(config, dataset, clients, model, workload, values)
    entry = registry.entry(choice.engine)
    if entry.cpu_only and not _on_cpu(config):
        raise UserError(
            f"engine '{entry.name}' runs on the CPU only, not on device '{config.device}'; "
            "use --engine inprocess"
        )
    workers = useful_workers(entry, config, clients)
    if workers < config.workers:
        choice = replace(
            choice, warning=f"{choice.warning} {_fewer_workers(workers, config)}".strip()
        )
    federation, engine = entry.open(replace(workload, workers=workers))
    return federation, engine, choice


def useful_workers(entry: EngineEntry, config: Config, clients: Clients) -> int:
    """The workers that the settings ask for, as far as they can be of use; 0 is left to the engine.

    No more than clients in a round; and on this machine, no more than a few for each core.
    """
    if not entry.uses_workers:
        return config.workers
    limits = [config.workers, _cohort(config, clients)]
    if entry.uses_fork_server:  # the workers of a cluster have the cores of other machines
        limits.append(WORKERS_PER_CORE * usable_cores())
    return min(limits)


def workload_of(
    config: Config,
    dataset: Dataset,
    federation: Federation,
    clients: Clients,
    pool: Engine | None = None,
    fork_server: ForkServer | None = None,
    values: Values = NO_VALUES,
) -> Workload:
    """What any engine may need to run these settings; arguments as for `open_engine`."""
    return Workload(
        federation,
        lambda layout: _built_with(config, dataset, clients, layout, values, federation),
        _recipe(config, dataset, clients, federation),
        config.workers,
        fork_server,
        pool,
    )


def choose_engine(
    config: Config,
    dataset: Dataset,
    clients: Clients,
    model: Chain,
    workload: Workload,
    values: Values = NO_VALUES,
) -> EngineChoice:
    """The engine of the settings; for "auto" the fastest, by a calibration if the run is large.

    Objects without an importable name cannot be used by workers, so they run in-process.
    """
    if config.engine != AUTO:
        entry = registry.entry(config.engine)
        if values and entry.uses_workers:
            return _without_workers(entry, config, values)
        return EngineChoice(entry.name)
    if values:
        return EngineChoice("inprocess")
    work = _estimated_work(config, dataset, clients, model, workload.federation)
    pool, workers = registry.entry("pool"), 1
    if pool.available and _on_cpu(config):
        workers = useful_workers(pool, config, clients) or usable_cores()
    return fastest_engine(work, workload.federation, workload.rebuild, workers)


def resume_config(config: Config, path: Path) -> Config:
    """The settings with which a run resumes: the engine that "auto" has chosen stays the same."""
    if config.engine != AUTO or not (path / CHECKPOINT).is_dir():
        return config
    manifest = newest_manifest(path / CHECKPOINT)
    if manifest is None:
        return config
    engine = manifest.extra.get("engine", AUTO)
    return load({**config.model_dump(mode="json"), "engine": engine})


def build_in_worker(message: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Federation:
    """The federation of a recipe: its settings, with the data in memory that workers share.

    The message names the device of a worker, to which the data are copied; the server's process
    has none, and stays on the CPU.
    """
    config = load(tomllib.loads(message["settings"]))
    if "device" in message:
        own = {"engine": "inprocess", "device": message["device"]}
        config = config.model_copy(update=own)
    device = server_device(config)
    facts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in message["dataset"].items()
    }
    train = Split(tensors["train.x"], tensors["train.y"])
    test = Split(tensors["test.x"], tensors["test.y"])
    dataset = Dataset(train=train, test=test, **facts)
    normalise = normaliser(dataset, getattr(torch, config.dtype), device)
    change = augment.build(config.data.augment)
    clients = _shared_clients(place(train, device), tensors, "", normalise, change)
    own_test = None
    if config.evaluate.on == "own":
        owners = _shared_clients(place(test, device), tensors, "test.", normalise)
        own_test = OwnTestBatches(owners, config.evaluate.batch)
    return build_federation(config, dataset, clients, own_test=own_test)


def _shared_clients(
    split: Split,
    tensors: Mapping[str, Tensor],
    prefix: str,
    normalise: Normaliser,
    augment: Augment | None = None,
) -> Clients:
    """The clients that `_client_tensors` was given, with the same prefix."""
    rows, starts, stops = (tensors[f"{prefix}{name}"] for name in ("rows", "starts", "stops"))
    rows = rows.to(split.x.device)
    return Clients(split, rows, starts.numpy(), stops.numpy(), normalise, augment)


def _client_tensors(clients: Clients, prefix: str) -> dict[str, Tensor]:
    """Which rows each client has."""
    return {
        f"{prefix}rows": clients.rows,
        f"{prefix}starts": torch.from_numpy(clients.starts.astype(np.int64)),
        f"{prefix}stops": torch.from_numpy(clients.stops.astype(np.int64)),
    }


def _recipe(config: Config, dataset: Dataset, clients: Clients, federation: Federation) -> Recipe:
    """What `build_in_worker` needs."""
    tensors = {
        "train.x": dataset.train.x,
        "train.y": dataset.train.y,
        "test.x": dataset.test.x,
        "test.y": dataset.test.y,
        **_client_tensors(clients, ""),
    }
    if isinstance(federation.own_test, OwnTestBatches):
        tensors |= _client_tensors(federation.own_test.clients, "test.")
    names = ("name", "kind", "classes", "mean", "std", "task")
    facts = {name: getattr(dataset, name) for name in names}
    build = f"{__name__}:{build_in_worker.__name__}"
    settings, devices = resolve_auto(config).text(), worker_devices(config)
    return Recipe(build, settings, facts, tensors, devices, config.deterministic)


def _built_with(
    config: Config,
    dataset: Dataset,
    clients: Clients,
    layout: str,
    values: Values,
    federation: Federation,
) -> Federation:
    """The federation with another memory layout."""
    config = config.model_copy(update={"layout": layout})
    rebuilt = build_federation(config, dataset, clients, values)
    return replace(rebuilt, own_test=federation.own_test)


def _estimated_work(
    config: Config, dataset: Dataset, clients: Clients, model: Chain, federation: Federation
) -> WorkEstimate:
    samples = config.train.epochs * float(np.mean(clients.sizes))
    steps = config.train.steps or math.ceil(samples / config.train.batch)
    named = config.model_dump(mode="json", include={"method", "model", "dtype"})
    if (device := resolve_device(config.device)).type != "cpu":
        named["device"] = _described(device)
    return WorkEstimate(
        # a backward pass costs twice a forward pass
        macs_per_step=3 * rough_macs(model, one_sample(federation)) * config.train.batch,
        steps=steps,
        cohort=_cohort(config, clients),
        rounds=config.rounds,
        facts={**named, "shape": dataset.shape, "batch": config.train.batch},
    )


def _cohort(config: Config, clients: Clients) -> int:
    """Clients per round."""
    return min(int(config.sample.args.get("per_round", len(clients))), len(clients))


def _fewer_workers(workers: int, config: Config) -> str:
    return (
        f"workers={config.workers} is more than a round of this run can use on this machine; "
        f"running with {workers}."
    )


def _without_workers(entry: EngineEntry, config: Config, values: Values) -> EngineChoice:
    """The in-process engine, with a warning that workers cannot use these objects.

    Not for a GPU: this process has built everything on the CPU, since workers were to train.
    """
    cannot, remedy = _cannot_import(entry, config, values)
    if not _on_cpu(config):
        raise UserError(f"{cannot}; use --engine inprocess. {remedy}")
    return EngineChoice("inprocess", warning=f"{cannot}; running in-process. {remedy}")


def _cannot_import(entry: EngineEntry, config: Config, values: Values) -> tuple[str, str]:
    """That workers cannot use these objects, and what to do about it."""
    kinds = {config.model.name: "model", config.loss: "loss"}
    kinds |= dict.fromkeys(config.evaluate.metrics or (), "metric")
    names = " and ".join(f"{kinds.get(key, 'method')} '{short_reference(key)}'" for key in values)
    them = "it" if len(values) == 1 else "them"
    return (
        f"engine '{entry.name}' runs clients in other processes, which cannot import {names} "
        "(defined in a notebook or script)",
        f"Put {them} into a module to use {entry.label}.",
    )


def _described(device: torch.device) -> str:
    """The kind of a device, on which the time of a run depends."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _on_cpu(config: Config) -> bool:
    return resolve_device(config.device).type == "cpu"
