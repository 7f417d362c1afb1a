"""What a model learns: the loss, the form of the targets, and what tables call the score.

    task             targets y                            outputs           loss
    classification   int64 (n,), or rows of probabilities (n, C) logits     cross-entropy
    multilabel       0 or 1, (n, L)                       (n, L) logits     binary cross-entropy
    regression       real, (n,) or (n, k)                 (n, k) or (n,)    squared error
    next-token       int64 (n, T); -100 is ignored        (n, T, V) logits  cross-entropy by token

Losses are means: over samples, over samples and labels or targets, or over tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.errors import unknown_name

IGNORED = -100  # a target token that does not count
TargetLoss = Callable[[Tensor, Tensor], Tensor]  # of outputs and targets


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy with class indices, or with one row of probabilities per sample."""
    if targets.dim() == 1:
        return F.cross_entropy(outputs, targets)
    return _soft_cross_entropy(outputs, targets)


def _soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Mean cross-entropy with one row of probabilities per sample, as a single dot product.

    torch's own makes twice as many passes over few numbers, 1 % of a step of LeNet-5.
    """
    targets = probabilities.div(-len(probabilities))
    logs = F.log_softmax(logits, 1, dtype=targets.dtype)  # logits may be of a lower precision
    return torch.dot(logs.flatten(), targets.flatten())


def _binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    # a model with one output per sample may return a column while the targets are a vector
    outputs, targets = in_one_type(outputs, targets)
    return F.mse_loss(outputs, targets.view_as(outputs))


def _token_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean over the tokens that count; 0 if none does."""
    total = F.cross_entropy(
        outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / _counted_tokens(targets).clamp(min=1)


def _sample_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _sample_binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = F.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none"
    )
    return losses.mean(1)


def _sample_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    errors = outputs - targets.view_as(outputs)
    return errors.square().flatten(1).mean(1) if errors.dim() > 1 else errors.square()


def _samples(targets: Tensor) -> Tensor:
    return torch.tensor(len(targets))


def _counted_tokens(targets: Tensor) -> Tensor:
    return (targets != IGNORED).sum()


def _softmax(outputs: Tensor) -> Tensor:
    return outputs.softmax(-1)


def _values(outputs: Tensor) -> Tensor:
    return outputs


@dataclass(frozen=True)
class LearningTask:
    """One of the tasks, or a copy of it with a user-defined loss.

    has_classes    whether targets are class indices.
    score          what tables call the number that is better when higher.
    loss           the mean loss of outputs on targets.
    sample_losses  the loss of every sample, of which `loss` is the mean; None if samples have no
                   loss of their own: tokens may be left out, or the loss is user-defined.
    units          how many things the loss is a mean of: samples, or tokens that count.
    predictions    probabilities, or the values themselves; what metrics look at.
    """

    name: str
    has_classes: bool
    score: str
    loss: TargetLoss
    sample_losses: TargetLoss | None
    units: Callable[[Tensor], Tensor]
    predictions: Callable[[Tensor], Tensor]

    @property
    def has_empty_batches(self) -> bool:
        """Whether a batch may have no loss at all: text in which no token counts."""
        return self.units is _counted_tokens

    @property
    def cross_entropy(self) -> TargetLoss:
        """The mean cross-entropy of a task with classes, also where the loss is user-defined."""
        assert self.has_classes
        return TASKS[self.name].loss

    def counted(self, targets: Tensor) -> Tensor | None:
        """Which targets count; None if all of them do."""
        return targets != IGNORED if self.has_empty_batches else None


CLASSIFICATION = LearningTask(
    "classification", True, "accuracy", cross_entropy, _sample_cross_entropy, _samples, _softmax
)
MULTILABEL = LearningTask(
    "multilabel",
    False,
    "label accuracy",
    _binary_cross_entropy,
    _sample_binary_cross_entropy,
    _samples,
    torch.sigmoid,
)
REGRESSION = LearningTask(
    "regression", False, "R2", _squared_error, _sample_squared_error, _samples, _values
)
NEXT_TOKEN = LearningTask(
    "next-token", True, "token accuracy", _token_cross_entropy, None, _counted_tokens, _softmax
)

TASKS: Mapping[str, LearningTask] = MappingProxyType(
    {task.name: task for task in (CLASSIFICATION, MULTILABEL, REGRESSION, NEXT_TOKEN)}
)
# for methods that mix labels or count samples by class
CLASSIFICATION_ONLY = frozenset({CLASSIFICATION.name})
# for methods that compare class probabilities: tokens are classes, too
WITH_CLASSES = frozenset(task.name for task in TASKS.values() if task.has_classes)


def standardised(task: LearningTask, mean: Tensor, std: Tensor) -> LearningTask:
    """The task with outputs in standard deviations from the mean of the targets.

    Losses compare the outputs with targets in these units; predictions are in those of the data.
    """

    def scaled(loss: TargetLoss) -> TargetLoss:
        def of_scaled_targets(outputs: Tensor, targets: Tensor) -> Tensor:
            outputs, targets = in_one_type(outputs, targets)
            return loss(outputs, (targets - mean.to(targets)) / std.to(targets))

        return of_scaled_targets

    def in_units_of_the_data(outputs: Tensor) -> Tensor:
        values = task.predictions(outputs)
        return values * std.to(values) + mean.to(values)

    return replace(
        task,
        loss=scaled(task.loss),
        sample_losses=None if task.sample_losses is None else scaled(task.sample_losses),
        predictions=in_units_of_the_data,
    )


def in_one_type(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their two types: neither targets nor outputs are rounded.

    Most losses of torch have no gradient if the two types differ.
    """
    wider = torch.promote_types(outputs.dtype, targets.dtype)
    return outputs.to(wider), targets.to(wider)


def like_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    """Outputs of shape (n, 1) as (n,) where the targets have that shape.

    User-defined functions get these: (n, 1) - (n,) would broadcast to n * n differences.
    """
    is_column = outputs.dim() == targets.dim() + 1 and outputs.shape[-1] == 1
    return outputs.squeeze(-1) if is_column else outputs


def learning_task(name: str) -> LearningTask:
    """The task with this name; raises UserError otherwise."""
    if not isinstance(name, str) or name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name]
