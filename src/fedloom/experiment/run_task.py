"""The task of a run: its loss, which may be user-defined, and the settings that it rules out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedloom.core import user_code
from fedloom.core.errors import UserError, raise_all
from fedloom.core.learning_task import (
    IGNORED,
    NEXT_TOKEN,
    LearningTask,
    TargetLoss,
    in_one_type,
    learning_task,
    like_targets,
    standardised,
)
from fedloom.core.method import Method
from fedloom.data.client import Clients
from fedloom.data.partition import WITHOUT_CLASSES
from fedloom.settings.config import Config


def run_task(config: Config, values: Mapping[str, Any], targets: Tensor) -> LearningTask:
    """The task of the settings, with the user-defined loss if they name one.

    targets: of the training samples, whose mean and deviation scale those of regression.
    """
    task = task_with_loss(config, values)
    scale = target_scale(config, targets)
    return task if scale is None else standardised(task, *scale)


def target_scale(config: Config, targets: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and deviation of the training targets; None if the run does not scale them."""
    if config.task != "regression" or not config.data.standardise:
        return None
    columns = targets.double()
    std = columns.std(0, correction=0)
    return columns.mean(0), torch.where(std > 0, std, 1.0)


def task_with_loss(config: Config, values: Mapping[str, Any]) -> LearningTask:
    """The task of the settings before its targets are scaled."""
    task, loss = learning_task(config.task), config.loss
    if not loss:
        return task
    if loss not in values and not user_code.is_reference(loss):
        raise UserError(
            f"loss='{loss}' is not a function of outputs and targets; write file.py:function, or "
            "pass the function to Experiment(loss=...)"
        )
    function = values[loss] if loss in values else user_code.load("loss", loss)
    _check_no_weights(function, loss)
    return replace(task, loss=_of_user(function, task), sample_losses=None)


def _check_no_weights(loss: TargetLoss, name: str) -> None:
    """Raise if a loss that is a module has weights to be trained, which no client would train."""
    named = loss.named_parameters() if isinstance(loss, nn.Module) else ()
    trained = [n for n, weight in named if weight.requires_grad]
    if trained:
        raise UserError(
            f"loss '{user_code.short_reference(name)}' has weights of its own ('{trained[0]}'), "
            "and only those of the model are trained; move them into the model, or, if they are "
            "to stay as they are, freeze them with requires_grad_(False)"
        )


def _of_user(loss: TargetLoss, task: LearningTask) -> TargetLoss:
    """The user-defined loss on copies, which it may change, of one type; for regression, of one
    shape.

    The outputs are also judged by metrics, and the targets of an evaluation are those of the data.
    """

    def on_copies(outputs: Tensor, targets: Tensor) -> Tensor:
        if task.name == "regression":
            outputs = like_targets(outputs, targets)
        if not task.has_classes:
            outputs, targets = in_one_type(outputs, targets)
        return loss(outputs.clone(), targets.clone())

    return on_copies


def check_test_samples(config: Config, samples: int) -> None:
    """Raise if the score of the task is not defined on so few test samples."""
    if config.task == "regression" and samples < 2:
        remedy = "raise data.validation" if config.data.validation else "provide more test samples"
        raise UserError(
            f"R2, the score of task=regression, needs at least two test samples, and "
            f"'{config.data.name}' has {samples}; {remedy}"
        )


def check_tokens(config: Config, clients: Clients) -> None:
    """Raise for clients without a token to predict.

    They would learn nothing, have a training loss of 0, and hold the mean of all clients back.
    """
    if config.task != NEXT_TOKEN.name:
        return
    counts = (clients.split.y != IGNORED).flatten(1).any(1)[clients.rows].cpu().numpy()
    up_to = np.concatenate([[0], np.cumsum(counts)])
    without = np.flatnonzero(up_to[clients.stops] == up_to[clients.starts])
    if len(without):
        others = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
        raise UserError(
            f"client {without[0]}{others} has no token to predict: all targets of its training "
            f"samples are {IGNORED}; leave out the samples without one, or give some positions "
            "the token that follows"
        )


def loss_conflicts(config: Config, method: Method) -> Iterator[str]:
    """A problem if some phase of the method would not use the user-defined loss."""
    if config.loss and method.fixed_loss:
        yield (
            f"method '{method.name}' minimises a formula of its own with the cross-entropy and "
            f"would not use loss={user_code.short_reference(config.loss)}; leave out the loss, or "
            "choose another method"
        )


def check_data_settings(config: Config) -> None:
    """Raise for settings that use the classes of samples, if samples have none in this task."""
    if config.task == "classification":
        return
    data, problems = config.data, []
    none = f"and with task={config.task} samples have no class"
    if data.partition.name not in WITHOUT_CLASSES:
        problems.append(
            f"data.partition={data.partition} splits samples by class, {none}; "
            f"use {' or '.join(sorted(WITHOUT_CLASSES, reverse=True))}"
        )
    given = {
        "classes": data.classes is not None,
        "per_class": data.per_class is not None,
        "longtail": data.longtail != 1,
    }
    for name in (name for name, is_given in given.items() if is_given):
        value = getattr(data, name)
        problems.append(f"data.{name}={value:g} selects samples by class, {none}; leave it out")
    raise_all(problems, "settings")
