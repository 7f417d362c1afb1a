"""From settings to things: data, clients, model, method and engine, with every complaint at once and before round 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedloom.core import adapt, external
from fedloom.core.chain import Chain
from fedloom.core.client import Federation
from fedloom.core.errors import UserError, all_at_once, unknown
from fedloom.core.guard import Guard
from fedloom.core.key import Key
from fedloom.core.round import Engine, Loom
from fedloom.core.sampler import SAMPLERS, Sampler
from fedloom.core.select import has_batch_statistics
from fedloom.core.solver import HeavyBall, Schedule, Sgd
from fedloom.core.words import Word, call, complaints
from fedloom.data import augment, store
from fedloom.data.client import Clients, evaluation_batches, federate, normaliser, place
from fedloom.data.dataset import Dataset
from fedloom.data.partition import check as check_partition
from fedloom.data.partition import partition
from fedloom.data.statistics import class_counts
from fedloom.engines.inprocess import InProcess
from fedloom.methods.registry import build as build_method
from fedloom.models import registry as models
from fedloom.study.config import Config, TrainSettings

ENGINES: dict[str, Callable[[Federation], Engine]] = {"auto": InProcess, "inprocess": InProcess}


@dataclass(frozen=True)
class Study:
    """A run, ready to begin. counts: training samples, clients by classes. test: fresh batches of the test data."""

    config: Config
    dataset: Dataset
    clients: Clients
    counts: Tensor
    model: Chain
    loom: Loom
    test: Callable[[], Iterable[tuple[Tensor, Tensor]]]


def assemble(config: Config, dataset: Dataset | None = None) -> Study:
    """Everything a run needs; a data set given here takes the place of the named one."""
    check_words(config)
    device = device_of(config.device)
    dataset = dataset or store.load(config.data.name)
    key, dtype = Key.root(config.seed), getattr(torch, config.dtype)
    parts = deal(config, dataset)
    clients = federate(dataset, parts, augment.build(config.data.augment), dtype, device)
    build = partial(build_model, config.model, dataset, key.fold("init"), dtype, device)
    model = tried(build, config.model, dataset, dtype, device)
    method = build_method(config.words)
    sizes = clients.sizes
    all_at_once(_misfits(config, model, sizes), "settings")
    method.check(model)
    held_out = place(dataset.test, device)
    test = partial(evaluation_batches, held_out, normaliser(dataset, dtype, device), config.evaluate.batch)
    federation = Federation(method, build, clients, solver_of(config.train, config.rounds), key, test, len(dataset.classes))
    loom = Loom(federation, sampler_of(config.sample), ENGINES[config.engine](federation), Guard(**config.guard.model_dump()))
    counts = torch.from_numpy(class_counts(dataset.train.labels, parts, len(dataset.classes)))
    return Study(config, dataset, clients, counts, model, loom, test)


def check_words(config: Config) -> None:
    """Every name and argument in the settings, checked without reading data; all complaints at once."""
    checks: list[Callable[[], Any]] = [
        lambda: build_method(config.words),
        lambda: check_model(config.model),
        lambda: check_partition(config.data.partition),
        lambda: augment.check(config.data.augment),
        lambda: sampler_of(config.sample),
        lambda: device_of(config.device),
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


def deal(config: Config, dataset: Dataset) -> list[np.ndarray]:
    """The rows of every client."""
    users = None if dataset.train.users is None else dataset.train.users.numpy()
    key = Key.root(config.seed).fold("partition")
    return partition(config.data.partition, dataset.train.labels, config.data.clients, key, users, config.data.longtail)


def check_model(word: Word) -> None:
    """Refuse an unknown model name."""
    if external.is_reference(word.name):
        external.load("model", word.name)
    elif word.name not in models.MODELS:
        raise unknown("model", word.name, models.MODELS, see="fedloom models")


def build_model(word: Word, dataset: Dataset, key: Key, dtype: torch.dtype, device: torch.device) -> Chain:
    """A model of the package, or a user's own function of (shape, classes) that returns a torch module."""
    if not external.is_reference(word.name):
        return models.build(word, dataset.shape, len(dataset.classes), key, dtype, device)
    make, given = external.load("model", word.name), {"shape": dataset.shape, "classes": len(dataset.classes)}
    all_at_once(complaints(make, word.args, frozenset(given)), f"model '{word.name}'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.seed)
        module = external.made("model", word.name, nn.Module, make, {**given, **word.args})
    return (module if isinstance(module, Chain) else adapt.of(module)).to(device=device, dtype=dtype)


def tried(build: Callable[[], Chain], word: Word, dataset: Dataset, dtype: torch.dtype, device: torch.device) -> Chain:
    """The model, once it has taken a sample and given a number for every class."""
    x, y = next(iter(evaluation_batches(place(dataset.test, device), normaliser(dataset, dtype, device), 1)))
    try:
        model = build()
        with torch.no_grad():
            found = tuple(model.eval()(x).shape)
    except RuntimeError as error:
        raise UserError(
            f"model '{word.name}' does not take a sample of shape {dataset.shape}: {error}; take another model"
        ) from error
    wanted = (len(y), len(dataset.classes))
    if found != wanted:
        raise UserError(
            f"model '{word.name}' gives a result of shape {found} for one sample, and {wanted} is needed; mend its last layer"
        )
    return model.train()


def solver_of(train: TrainSettings, rounds: int) -> Sgd:
    """The run's solver."""
    plain = train.model_dump(include={"lr", "batch", "epochs", "steps", "clip", "drop_last", "reset"})
    rule = HeavyBall(train.momentum, train.nesterov, train.weight_decay)
    return Sgd(**plain, rule=rule, schedule=Schedule(**train.schedule.model_dump(), over=rounds))


def sampler_of(word: Word) -> Sampler:
    """Who takes part in a round."""
    if word.name not in SAMPLERS:
        raise unknown("sampler", word.name, SAMPLERS)
    sampler: Sampler = call("sampler", word.name, SAMPLERS[word.name], word.args)
    return sampler


def device_of(name: str) -> torch.device:
    """The device of that name; auto takes the fastest there is."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(d for d in ("cuda", "mps", "cpu") if there[d]))
    kind, _, number = name.partition(":")
    if kind not in there or (number and kind != "cuda"):
        raise unknown("device", name, ["auto", *there])
    if not there[kind] or (number and not (number.isdigit() and int(number) < torch.cuda.device_count())):
        usable = ", ".join(["auto", *(d for d, yes in there.items() if yes)])
        raise UserError(f"device '{name}' is not there on this machine (usable: {usable}); take one of these")
    return torch.device(name)


def _misfits(config: Config, model: Chain, sizes: np.ndarray) -> list[str]:
    """What fits by itself but not together."""
    per_round, said = config.sample.args.get("per_round", 1), []
    if per_round > len(sizes):
        said.append(f"sample.per_round={per_round} is more than the {len(sizes)} clients; lower it or raise data.clients")
    if config.guard.least > min(per_round, len(sizes)) and config.sample.name != "all":
        said.append(f"guard.least={config.guard.least} is more than the {per_round} clients a round; lower it")
    if has_batch_statistics(model) and not config.train.drop_last:
        alone = np.flatnonzero(sizes < 2)
        if config.train.batch == 1:
            said.append("train.batch=1 gives batch norm one sample; raise it, or take a model with norm='group'")
        elif len(alone):
            said.append(f"client {alone[0]} has 1 sample, and model '{config.model.name}' normalises by batches of at least 2; "
                        "raise min_size in data.partition, or take a model with norm='group'")  # fmt: skip
    if config.train.drop_last and (sizes < config.train.batch).all():
        said.append(f"train.drop_last=true leaves no batch: every client has fewer than train.batch={config.train.batch} samples; "
                    "lower train.batch")  # fmt: skip
    return said
