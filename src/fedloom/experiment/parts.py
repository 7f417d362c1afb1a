"""The parts of a run, each made from its settings: clients, model, solver, device, and the federation they make together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from fedloom.core import chain_from_module, user_code
from fedloom.core.chain import Chain
from fedloom.core.client import Federation
from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.key import Key
from fedloom.core.solver import Schedule, Sgd, SGDRule
from fedloom.core.spec import Spec, argument_problems
from fedloom.data import augment
from fedloom.data.client import Clients, EvaluationBatches, federate, normaliser, place
from fedloom.data.dataset import Dataset
from fedloom.experiment.memory_layout import arrange
from fedloom.methods.registry import build as build_method
from fedloom.models import registry as models
from fedloom.settings.config import Config, TrainSettings


def build_federation(config: Config, dataset: Dataset, clients: Clients) -> Federation:
    """What a worker needs to play any client, the same in every process."""
    device, dtype, key = (
        resolve_device(config.device),
        getattr(torch, config.dtype),
        Key.root(config.seed),
    )
    method, init, layout = build_method(config.words), key.fold("init"), resolve_layout(config)
    plain = partial(build_model, config.model, dataset, init, dtype, device)
    return Federation(
        method=method,
        build=lambda: arrange(method.reshaped(plain(), init), layout, config.compile),
        clients=clients,
        solver=build_solver(config.train, config.rounds),
        key=key,
        test=EvaluationBatches(
            place(dataset.test, device), normaliser(dataset, dtype, device), config.evaluate.batch
        ),
        classes=len(dataset.classes),
    )


def resolve_auto(config: Config) -> Config:
    """The settings with nothing left open that bits hang on; so they are written down with a run."""
    return config.model_copy(update={"layout": resolve_layout(config)})


def resolve_layout(config: Config) -> str:
    """How images lie: by the model and the device, never by a clock.

    A model of one's own may not bear channels last: a `view` behind a convolution does not.
    """
    if config.layout != "auto":
        return config.layout
    plain = user_code.is_reference(config.model.name) or resolve_device(config.device).type != "cpu"
    return "contiguous" if plain else "channels_last"


def build_clients(config: Config, dataset: Dataset, parts: Sequence[np.ndarray]) -> Clients:
    """The training data as clients."""
    return federate(
        dataset,
        parts,
        augment.build(config.data.augment),
        getattr(torch, config.dtype),
        resolve_device(config.device),
    )


def build_model(
    word: Spec, dataset: Dataset, key: Key, dtype: torch.dtype, device: torch.device
) -> Chain:
    """A model of the package, or a user's own function of (shape, classes) that returns a torch module."""
    if not user_code.is_reference(word.name):
        return models.build(word, dataset.shape, len(dataset.classes), key, dtype, device)
    make, given = (
        user_code.load("model", word.name),
        {"shape": dataset.shape, "classes": len(dataset.classes)},
    )
    raise_all(argument_problems(make, word.args, frozenset(given)), f"model '{word.name}'")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key.seed)
        module = user_code.call_user_function(
            "model", word.name, nn.Module, make, {**given, **word.args}
        )
    return (module if isinstance(module, Chain) else chain_from_module.cut(module)).to(
        device=device, dtype=dtype
    )


def build_solver(train: TrainSettings, rounds: int) -> Sgd:
    """The run's solver."""
    plain = train.model_dump(
        include={"lr", "batch", "epochs", "steps", "clip", "drop_last", "reset"}
    )
    rule = SGDRule(train.momentum, train.nesterov, train.weight_decay)
    return Sgd(**plain, rule=rule, schedule=Schedule(**train.schedule.model_dump(), over=rounds))


def resolve_device(name: str) -> torch.device:
    """The device of that name; auto takes the fastest there is."""
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return torch.device(next(d for d in ("cuda", "mps", "cpu") if there[d]))
    kind, _, number = name.partition(":")
    if kind not in there or (number and kind != "cuda"):
        raise unknown_name("device", name, ["auto", *there])
    if not there[kind] or (
        number and not (number.isdigit() and int(number) < torch.cuda.device_count())
    ):
        usable = ", ".join(["auto", *(d for d, yes in there.items() if yes)])
        raise UserError(
            f"device '{name}' is not there on this machine (usable: {usable}); take one of these"
        )
    return torch.device(name)
