"""From settings to a run that is ready to begin; every problem is reported at once, before round 0.

prepare    checks the names in the settings, loads and partitions the data, builds the method, the
           model and the federation, and opens the engine, in this order and each of them once
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedloom.core import user_code
from fedloom.core.chain import Chain
from fedloom.core.errors import UserError, unknown_name
from fedloom.core.federation import Federation
from fedloom.core.key import Key
from fedloom.core.method import Method
from fedloom.core.sampler import SAMPLERS, Sampler
from fedloom.core.spec import Spec, call
from fedloom.data import augment, store
from fedloom.data.client import (
    Clients,
    EvaluationBatches,
    OwnTestBatches,
    clients_of,
    federate,
    normaliser,
    place,
)
from fedloom.data.dataset import Dataset
from fedloom.data.partition import partition
from fedloom.data.parts import Parts
from fedloom.data.subset import renormalised, subset
from fedloom.data.tasks import with_task
from fedloom.data.validation import evaluated_on, hold_out
from fedloom.engines.registry import ENGINES
from fedloom.experiment.build_solver import build_solver
from fedloom.experiment.memory_layout import arrange
from fedloom.experiment.run_task import run_task
from fedloom.methods.registry import build as build_method
from fedloom.metrics.registry import Metric, chosen_metrics
from fedloom.models import registry as models
from fedloom.models.from_user import build_user_model
from fedloom.settings.config import Config

Values = Mapping[str, Any]  # objects passed from Python that no name leads to, by "python:NAME"
NO_VALUES: Values = MappingProxyType({})


def load_data(config: Config, whole: Dataset | None = None) -> Dataset:
    """The part of the named data set, or of the one given, that the settings keep.

    With data.validation its test split is what the clients hold out of their training samples, so
    that nothing in a run can see the test data.
    """
    data = config.data
    whole = with_task(whole or named_data(data.name), config.task)
    kept = subset(whole, data.classes, data.per_class, data.pixels)
    if data.mean is not None or data.std is not None:
        kept = renormalised(kept, data.mean or (), data.std or ())
    if not data.validation:
        return kept
    return evaluated_on(kept, _split_rows(config, kept)[1])


def named_data(name: str) -> Dataset:
    """The whole data set of that name."""
    if name.startswith(user_code.VALUE_PREFIX):
        raise UserError(
            f"the data '{name}' were passed as a Python object, which settings cannot bring back; "
            "pass them again with fedloom.open(FOLDER, data=...)"
        )
    return store.load(name)


def partition_rows(config: Config, dataset: Dataset) -> Parts:
    """The rows that every client trains on."""
    return _split_rows(config, dataset)[0]


def _split_rows(config: Config, dataset: Dataset) -> tuple[Parts, Parts]:
    """The rows that every client trains on, and those that it holds out."""
    users = None if dataset.train.users is None else dataset.train.users.numpy()
    key = Key.root(config.seed).fold("partition")
    labels = dataset.train.labels
    if dataset.task != "classification":  # partitions without classes only count the samples
        labels = np.zeros(len(labels), np.int64)
    rows = partition(
        config.data.partition,
        labels,
        config.data.clients,
        key,
        users,
        config.data.longtail,
    )
    if not config.data.validation:
        return rows, []
    return hold_out(rows, config.data.validation, root(config).fold("validation"))


def build_clients(config: Config, dataset: Dataset, rows: Sequence[np.ndarray]) -> Clients:
    """The training data, split among the clients."""
    augment.check_data(config.data.augment, dataset)
    dtype, device = getattr(torch, config.dtype), server_device(config)
    return federate(dataset, rows, augment.build(config.data.augment), dtype, device)


def own_test_batches(
    config: Config, dataset: Dataset, rows: Sequence[np.ndarray]
) -> OwnTestBatches:
    """The test samples, split among the clients by these rows."""
    dtype, device = getattr(torch, config.dtype), server_device(config)
    clients = clients_of(dataset.test, rows, normaliser(dataset, dtype, device), device=device)
    return OwnTestBatches(clients, config.evaluate.batch)


def build_federation(
    config: Config,
    dataset: Dataset,
    clients: Clients,
    values: Values = NO_VALUES,
    method: Method | None = None,
    own_test: OwnTestBatches | None = None,
) -> Federation:
    """What a process needs to run any client, the same in every process.

    method: the one that the settings describe, where it has been built already. own_test: the
    clients' own test samples, if models are scored on them.
    """
    method = method or build_method(config.method_specs, values)
    device, dtype, key = server_device(config), getattr(torch, config.dtype), root(config)
    init, layout = key.fold("init"), resolve_layout(config)
    plain = partial(build_model, config.model, dataset, init, dtype, device, values)
    test = place(dataset.test, device)
    return Federation(
        method=method,
        build=lambda: arrange(method.reshaped(plain(), init), layout, config.compile),
        clients=clients,
        solver=replace(build_solver(config.train, config.rounds), precision=config.precision),
        key=key,
        test=EvaluationBatches(test, normaliser(dataset, dtype, device), config.evaluate.batch),
        classes=len(dataset.classes),
        task=run_task(config, values, dataset.train.y),
        own_test=own_test,
        metrics={
            metric.name: metric.function
            for metric in build_metrics(config, values).values()
            if metric.function is not None
        },
    )


def build_metrics(config: Config, values: Values = NO_VALUES) -> dict[str, Metric]:
    """The metrics that the settings ask for, and the one that is the score of the task."""
    return chosen_metrics(config.task, config.evaluate.metrics, values)


def root(config: Config) -> Key:
    """The key that all randomness of a run derives from."""
    return Key.root(config.seed)


def check_model(spec: Spec, values: Values = NO_VALUES) -> None:
    """Raise for an unknown model, or for wrong arguments of a registered one."""
    if spec.name in values:
        return
    if user_code.is_reference(spec.name):
        user_code.load("model", spec.name)
    else:
        models.check(spec)


def build_model(
    spec: Spec,
    dataset: Dataset,
    key: Key,
    dtype: torch.dtype,
    device: torch.device,
    values: Values = NO_VALUES,
) -> Chain:
    """A registered model, or the user's: a module, a class, or a function of (shape, classes)."""
    shape, classes = dataset.shape, len(dataset.classes)
    if spec.name in values:
        source = values[spec.name]
    elif user_code.is_reference(spec.name):
        source = user_code.load("model", spec.name)
    else:
        return models.build(spec, shape, classes, key, dtype, device)
    sample = partial(_zeros, dataset)
    model = build_user_model(spec, source, shape, classes, key, sample)
    return model.to(device=device, dtype=dtype)


def _zeros(dataset: Dataset) -> Tensor:
    """A batch of one sample in the form in which a model gets it."""
    stored = torch.zeros((1, *dataset.shape), dtype=dataset.train.x.dtype)
    return normaliser(dataset)(stored)


def build_sampler(spec: Spec) -> Sampler:
    """Who takes part in a round."""
    if spec.name not in SAMPLERS:
        raise unknown_name("sampler", spec.name, SAMPLERS)
    sampler: Sampler = call("sampler", spec.name, SAMPLERS[spec.name], spec.args)
    return sampler


def resolve_auto(config: Config) -> Config:
    """The settings with every choice made that results depend on; a run folder stores them so."""
    return config.model_copy(update={"layout": resolve_layout(config)})


def resolve_layout(config: Config) -> str:
    """The memory layout of images: decided by the model and the device, never by a timing.

    A user's model may not work with channels last: a `view` after a convolution does not.
    """
    if config.layout != "auto":
        return config.layout
    from_user = user_code.is_reference(config.model.name)
    on_cpu = resolve_device(config.device).type == "cpu"
    return "channels_last" if on_cpu and not from_user else "contiguous"


def server_device(config: Config) -> torch.device:
    """The device of the process that runs the rounds: the CPU if workers train the clients."""
    entry = ENGINES.get(config.engine)
    if entry is not None and entry.uses_workers:
        return torch.device("cpu")
    return resolve_device(config.device)


def worker_devices(config: Config) -> tuple[str, ...]:
    """The GPUs among which workers are distributed; none if they run on the CPU.

    "cuda", and "auto" on a machine with GPUs, are all of them; "cuda:1" is that one alone.
    """
    device = resolve_device(config.device)
    if device.type == "cpu":
        return ()
    if device.type == "cuda" and device.index is None:
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    return (str(device),)


def resolve_device(name: str) -> torch.device:
    """The device of that name; "auto" is the fastest one present."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    usable = [kind for kind, here in present.items() if here]
    if name == "auto":
        return torch.device(usable[0])
    kind, _, number = name.partition(":")
    if kind == "gpu":  # the closest name would be cpu
        raise UserError(f"no device '{name}'; write cuda, or auto for a GPU where there is one")
    if kind not in present or (number and kind != "cuda"):
        raise unknown_name("device", name, ["auto", *present])
    if kind not in usable or not _has_number(number):
        choices = ", ".join(["auto", *reversed(usable)])
        raise UserError(f"device '{name}' does not exist on this machine; choose one of: {choices}")
    return torch.device(name)


def _has_number(number: str) -> bool:
    """Whether there is a GPU of this number; no number is the default one."""
    return not number or (number.isdigit() and int(number) < torch.cuda.device_count())
