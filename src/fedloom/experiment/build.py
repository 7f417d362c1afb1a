"""From settings to a run that is ready to begin, with every complaint at once and before round 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.client import Federation
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.exchange import notices
from fedloom.core.guard import Guard
from fedloom.core.key import Key
from fedloom.core.round import Simulation
from fedloom.core.sampler import SAMPLERS, Sampler
from fedloom.core.select import has_batch_statistics
from fedloom.core.spec import Spec, call
from fedloom.data import augment, store
from fedloom.data.client import Clients
from fedloom.data.dataset import Dataset
from fedloom.data.partition import check as check_partition
from fedloom.data.partition import partition
from fedloom.data.statistics import class_counts
from fedloom.data.subset import renormalised, subset
from fedloom.engines.choose import EngineChoice
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.pool import Pool
from fedloom.engines.ray import RayCluster
from fedloom.experiment.memory_layout import check_compiler
from fedloom.experiment.open_engine import open_engine
from fedloom.experiment.parts import build_clients, build_federation, resolve_device
from fedloom.methods.registry import build as build_method
from fedloom.models import registry as models
from fedloom.settings.config import Config, load


@dataclass(frozen=True)
class PreparedRun:
    """A run, ready to begin. counts: training samples, clients by classes; choice: the engine. Close it to end its workers.

    notices: what the user has to know before clients send anything but weights. code: checksums of the user's own files.
    """

    config: Config
    dataset: Dataset
    clients: Clients
    counts: Tensor
    model: Chain
    simulation: Simulation
    choice: EngineChoice
    notices: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)

    def close(self) -> None:
        self.simulation.engine.close()

    def __enter__(self) -> PreparedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def prepare(
    config: Config,
    dataset: Dataset | None = None,
    pool: Pool | RayCluster | None = None,
    fork_server: ForkServer | None = None,
) -> PreparedRun:
    """Everything a run needs; a data set given here takes the place of the named one, a pool and a nursery those of new ones."""
    check_names(config)
    dataset = load_data(config, dataset)
    parts = partition_rows(config, dataset)
    counts = torch.from_numpy(class_counts(dataset.train.labels, parts, len(dataset.classes)))
    clients = build_clients(config, dataset, parts)
    federation = build_federation(config, dataset, clients)
    model = check_model_output(federation, config.model, dataset)
    raise_all(_misfits(config, model, clients.sizes), "settings")
    federation.method.check(model)
    said = tuple(notices(federation, config.rounds))
    federation, engine, choice = open_engine(
        config, dataset, federation, clients, model, pool, fork_server
    )
    simulation = Simulation(
        federation, build_sampler(config.sample), engine, Guard(**config.guard.model_dump())
    )
    return PreparedRun(
        config, dataset, clients, counts, model, simulation, choice, said, config.code()
    )


def check_names(config: Config) -> None:
    """Every name and argument in the settings, checked without reading data; all complaints at once."""
    checks: list[Callable[[], Any]] = [
        lambda: build_method(config.words),
        lambda: check_model(config.model),
        lambda: check_partition(config.data.partition),
        lambda: augment.check(config.data.augment),
        lambda: build_sampler(config.sample),
        lambda: resolve_device(config.device),
        lambda: check_compiler(config.compile),
    ]
    said = [complaint for check in checks if (complaint := _complaint(check)) is not None]
    if said:
        raise UserError("\n".join(said))


def _complaint(check: Callable[[], Any]) -> str | None:
    try:
        check()
    except UserError as error:
        return str(error)
    return None


def load_data(config: Config, whole: Dataset | None = None) -> Dataset:
    """The part of the named data set, or of the one given, that the settings keep."""
    data = config.data
    kept = subset(whole or store.load(data.name), data.classes, data.per_class, data.pixels)
    return (
        kept
        if data.mean is None and data.std is None
        else renormalised(kept, data.mean or (), data.std or ())
    )


def partition_rows(config: Config, dataset: Dataset) -> list[np.ndarray]:
    """The rows of every client."""
    users = None if dataset.train.users is None else dataset.train.users.numpy()
    key = Key.root(config.seed).fold("partition")
    return partition(
        config.data.partition,
        dataset.train.labels,
        config.data.clients,
        key,
        users,
        config.data.longtail,
    )


def partition_counts(raw: Mapping[str, Any]) -> tuple[Config, np.ndarray]:
    """The settings and the clients-by-classes counts of their partition, without building a model."""
    config = load(raw)
    check_names(config)
    dataset = load_data(config)
    return config, class_counts(
        dataset.train.labels, partition_rows(config, dataset), len(dataset.classes)
    )


def check_model(word: Spec) -> None:
    """Refuse an unknown model name."""
    if user_code.is_reference(word.name):
        user_code.load("model", word.name)
    elif word.name not in models.MODELS:
        raise unknown_name("model", word.name, models.MODELS, see="fedloom models")


def check_model_output(federation: Federation, word: Spec, dataset: Dataset) -> Chain:
    """The model, once it has taken a sample and given a number for every class."""
    x, _ = federation.test[0]
    try:
        model = federation.build()
        with torch.no_grad():
            found = tuple(model.eval()(x[:1]).shape)
    except RuntimeError as error:
        raise UserError(
            f"model '{word.name}' does not take a sample of shape {dataset.shape}: {error}; take another model"
        ) from error
    wanted = (1, len(dataset.classes))
    if found != wanted:
        raise UserError(
            f"model '{word.name}' gives a result of shape {found} for one sample, and {wanted} is needed; mend its last layer"
        )
    return model.train()


def build_sampler(word: Spec) -> Sampler:
    """Who takes part in a round."""
    if word.name not in SAMPLERS:
        raise unknown_name("sampler", word.name, SAMPLERS)
    sampler: Sampler = call("sampler", word.name, SAMPLERS[word.name], word.args)
    return sampler


def _misfits(config: Config, model: Chain, sizes: np.ndarray) -> list[str]:
    """What fits by itself but not together."""
    per_round, said = config.sample.args.get("per_round", 1), []
    if per_round > len(sizes):
        said.append(
            f"sample.per_round={per_round} is more than the {len(sizes)} clients; lower it or raise data.clients"
        )
    if config.guard.min_replies > min(per_round, len(sizes)) and config.sample.name != "all":
        said.append(
            f"guard.min_replies={config.guard.min_replies} is more than the {per_round} clients a round; lower it"
        )
    if has_batch_statistics(model) and not config.train.drop_last:
        alone = np.flatnonzero(sizes < 2)
        if config.train.batch == 1:
            said.append(
                "train.batch=1 gives batch norm one sample; raise it, or take a model with norm='group'"
            )
        elif len(alone):
            said.append(f"client {alone[0]} has 1 sample, and model '{config.model.name}' normalises by batches of at least 2; "
                        "raise min_size in data.partition, or take a model with norm='group'")  # fmt: skip
    if config.train.drop_last and (sizes < config.train.batch).all():
        said.append(f"train.drop_last=true leaves no batch: every client has fewer than train.batch={config.train.batch} samples; "
                    "lower train.batch")  # fmt: skip
    return said
