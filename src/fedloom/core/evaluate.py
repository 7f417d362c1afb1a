"""A model on test data: its loss, its correct predictions by class, and what metrics need.

metrics/evaluate.py turns the answers into scores.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain
from fedloom.core.errors import RunError
from fedloom.core.learning_task import (
    CLASSIFICATION,
    IGNORED,
    NEXT_TOKEN,
    LearningTask,
    cross_entropy,
    like_targets,
)

MetricFunction = Callable[[Tensor, Tensor], float]  # of predictions and targets
Metrics = Mapping[str, MetricFunction]
NO_TENSOR = torch.zeros(0)
_NOTHING = (*(NO_TENSOR,) * 3, NO_TENSOR.long(), NO_TENSOR.bool())  # without any batch


@dataclass(frozen=True)
class ClassCounts:
    """Correct predictions (`hits`) and samples (`seen`) by class, and the mean loss.

    Labels and tokens are counted as a single class; the values of a regression are not counted.
    """

    hits: Tensor
    seen: Tensor
    loss: float

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.seen.sum().clamp(min=1))

    @property
    def recall(self) -> Tensor:
        """Accuracy by class; 0 for a class without test samples, which has `seen` 0."""
        return self.hits / self.seen.clamp(min=1)


@dataclass(frozen=True)
class Evaluation:
    """A model on some test data.

    units        what the loss is a mean of: samples, or tokens that count
    metrics      by name, where all test data of the model are at hand
    predictions  of every sample, with its targets; empty unless a metric is still to be computed
    token_loss   mean cross-entropy per token, for perplexity, where the loss is user-defined
    """

    counts: ClassCounts
    units: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    predictions: Tensor = NO_TENSOR
    targets: Tensor = NO_TENSOR
    token_loss: float | None = None

    @staticmethod
    def total(pieces: Sequence[Evaluation]) -> Evaluation:
        """Several parts of the test data, added up in the order given; without metrics."""
        hits = torch.stack([p.counts.hits for p in pieces]).sum(0)
        seen = torch.stack([p.counts.seen for p in pieces]).sum(0)
        loss = sum(p.counts.loss * p.units for p in pieces)
        units = sum(p.units for p in pieces)
        by_token = [p.token_loss * p.units for p in pieces if p.token_loss is not None]
        predicted = [p for p in pieces if len(p.predictions)]
        return Evaluation(
            ClassCounts(hits, seen, loss / max(units, 1.0)),
            units,
            predictions=torch.cat([p.predictions for p in predicted] or [NO_TENSOR]),
            targets=torch.cat([p.targets for p in predicted] or [NO_TENSOR]),
            token_loss=sum(by_token) / max(units, 1.0) if by_token else None,
        )

    def with_metrics(self, metrics: Metrics) -> Evaluation:
        """With the values of metrics in place of the predictions; NaN if there are no samples."""
        predictions = like_targets(self.predictions, self.targets)
        values = {
            name: _value(name, metric, predictions, self.targets) if self.units else math.nan
            for name, metric in metrics.items()
        }
        return replace(self, metrics=values, predictions=NO_TENSOR, targets=NO_TENSOR)


def _value(name: str, metric: MetricFunction, predictions: Tensor, targets: Tensor) -> float:
    try:
        return float(metric(predictions, targets))
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise RunError(
            f"metric '{name}' failed on predictions of shape {tuple(predictions.shape)} and "
            f"targets of shape {tuple(targets.shape)}: {cause}"
        ) from error


def evaluate_model(
    chain: Chain,
    batches: Iterable[tuple[Tensor, Tensor]],
    classes: int,
    task: LearningTask = CLASSIFICATION,
    keep_predictions: bool = False,
) -> Evaluation:
    """Evaluate on test batches, with the model in evaluation mode.

    Results stay on the device until the end, so that the host waits for it once.
    """
    chain.eval()
    judge = _JUDGES[task.name]
    found: list[tuple[Tensor, ...]] = []
    with torch.inference_mode():
        for x, y in batches:
            outputs = chain(x)
            loss = _total_loss(task, outputs, y)
            units = task.units(y).to(loss.device)
            group, right = judge(task, outputs, y)
            predicted = (task.predictions(outputs), y) if keep_predictions else ()
            totals = (loss.reshape(1), units.reshape(1), _own_token_loss(task, outputs, y))
            found.append((*totals, group, right, *predicted))
    joined = [torch.cat(parts) for parts in zip(*found, strict=True)]
    losses, units, by_token, group, right, *kept = on_host(joined) if found else _NOTHING
    counted = group >= 0
    hits, seen = _counts(group[counted], right[counted], counted_classes(task, classes))
    count = _sum(units)
    counts = ClassCounts(hits, seen, _sum(losses) / max(count, 1.0))
    token_loss = _sum(by_token) / max(count, 1.0) if len(by_token) else None
    predictions, targets = kept or (NO_TENSOR, NO_TENSOR)
    return Evaluation(counts, count, {}, predictions, targets, token_loss)


def count_correct(
    chain: Chain, batches: Iterable[tuple[Tensor, Tensor]], classes: int
) -> ClassCounts:
    """Count the correct predictions of a classifier over test batches."""
    return evaluate_model(chain, batches, classes).counts


def counted_classes(task: LearningTask, classes: int) -> int:
    """The length of `ClassCounts.hits` for a task."""
    return {"classification": classes, "regression": 0}.get(task.name, 1)


def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in main memory, in a single copy, since the host waits for the device at each."""
    if all(t.device.type == "cpu" for t in tensors):
        return list(tensors)
    return unpacked(packed(tensors).cpu(), tensors)


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of all tensors in one."""
    return torch.cat([t.contiguous().flatten().view(torch.uint8) for t in tensors])


def unpacked(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What was packed, given tensors of the same shapes and types."""
    sizes = [t.numel() * t.element_size() for t in like]
    parts = zip(torch.split(whole, sizes), like, strict=True)
    # cloned, since a view of another type needs an aligned start
    return [part.clone().view(t.dtype).view(t.shape) for part, t in parts]


def _total_loss(task: LearningTask, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a batch, summed over its units."""
    if task.loss is cross_entropy:  # a sum from the start: the mean times n has other bits
        return F.cross_entropy(outputs, targets, reduction="sum")
    return task.loss(outputs, targets) * task.units(targets).to(outputs.device)


def _own_token_loss(task: LearningTask, outputs: Tensor, targets: Tensor) -> Tensor:
    """The summed cross-entropy of a batch of tokens if the loss is another one, else nothing."""
    if task.name != NEXT_TOKEN.name or task.loss is NEXT_TOKEN.loss:
        return outputs.new_zeros(0)
    return _total_loss(NEXT_TOKEN, outputs, targets).reshape(1)


def _judge_classes(task: LearningTask, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return y, outputs.argmax(1) == y


def _judge_labels(task: LearningTask, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    right = ((task.predictions(outputs) > 0.5) == (y > 0.5)).flatten()
    return torch.zeros_like(right, dtype=torch.int64), right


def _judge_tokens(task: LearningTask, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    group = -(y == IGNORED).long()
    return group.flatten(), (outputs.argmax(-1) == y).flatten()


def _judge_nothing(task: LearningTask, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    nothing = torch.zeros(0, dtype=torch.int64, device=outputs.device)
    return nothing, nothing > 0


# For every prediction of a batch: the class it is counted in, -1 for none, and whether it is right.
_JUDGES: Mapping[str, Callable[[LearningTask, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "classification": _judge_classes,
    "multilabel": _judge_labels,
    "regression": _judge_nothing,
    "next-token": _judge_tokens,
}


def _counts(group: Tensor, right: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Correct predictions and all predictions, by class."""
    if not classes:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    hits, seen = (torch.bincount(g, minlength=classes).double() for g in (group[right], group))
    return hits, seen


def _sum(values: Tensor) -> float:
    """The sum in float64, added one after the other."""
    return functools.reduce(operator.add, values.double().tolist(), 0.0)


def evaluation_problem(
    given: Any, task: LearningTask, classes: int, metrics: Sequence[str], predicted: bool
) -> str | None:
    """Why an answer is not an evaluation for this task, or None.

    metrics: the names of those that it must have. predicted: whether it must have predictions.
    """
    if not isinstance(given, Evaluation):
        return f"it sent a {type(given).__name__}, not an evaluation"
    hits, seen = given.counts.hits, given.counts.seen
    size = counted_classes(task, classes)
    if hits.shape != (size,) or seen.shape != (size,):
        return f"it sent counts of shapes {tuple(hits.shape)} and {tuple(seen.shape)}"
    if not bool(((hits >= 0) & (hits <= seen) & torch.isfinite(seen)).all()):
        return "it sent more correct predictions than samples, or counts that are not numbers"
    if not 0 <= given.units < math.inf:
        return f"it sent an evaluation of {given.units} samples or tokens"
    if set(given.metrics) != set(metrics):
        return f"it sent the metrics {', '.join(given.metrics) or 'none'}"
    rows = len(given.targets)
    if len(given.predictions) != rows or (rows == 0) != (not predicted or given.units == 0):
        return f"it sent {len(given.predictions)} predictions for {rows} targets"
    return None
