"""Counts correct predictions by class; metrics/evaluate.py turns the counts into scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedloom.core.chain import Chain


@dataclass(frozen=True)
class ClassCounts:
    """Correct predictions (`hits`) and samples (`seen`) by class, and the mean loss."""

    hits: Tensor
    seen: Tensor
    loss: float

    @staticmethod
    def total(pieces: Sequence[ClassCounts]) -> ClassCounts:
        """The counts of several parts of the test data, added up in the order given."""
        hits = torch.stack([p.hits for p in pieces]).sum(0)
        seen = torch.stack([p.seen for p in pieces]).sum(0)
        loss = sum(p.loss * float(p.seen.sum()) for p in pieces)
        return ClassCounts(hits, seen, loss / max(float(seen.sum()), 1.0))

    @property
    def accuracy(self) -> float:
        return float(self.hits.sum() / self.seen.sum().clamp(min=1))

    @property
    def recall(self) -> Tensor:
        """Accuracy by class; 0 for a class without test samples, which has `seen` 0."""
        return self.hits / self.seen.clamp(min=1)


def counts_problem(counts: Any, classes: int) -> str | None:
    """Why an answer is not the counts of a test set with this many classes, or None."""
    if not isinstance(counts, ClassCounts):
        return f"it sent a {type(counts).__name__}, not counts of correct predictions"
    hits, seen = counts.hits, counts.seen
    if hits.shape != (classes,) or seen.shape != (classes,):
        return f"it sent counts of shapes {tuple(hits.shape)} and {tuple(seen.shape)}"
    if not bool(((hits >= 0) & (hits <= seen) & torch.isfinite(seen)).all()):
        return "it sent more correct predictions than samples, or counts that are not numbers"
    return None


def count_correct(
    chain: Chain, batches: Iterable[tuple[Tensor, Tensor]], classes: int
) -> ClassCounts:
    """Count over test batches, with the model in evaluation mode."""
    chain.eval()
    hits, seen, loss = (torch.zeros(classes, dtype=torch.float64) for _ in range(3))
    with torch.inference_mode():
        for x, y in batches:
            logits = chain(x)
            correct = y[logits.argmax(1) == y].cpu()
            hits += torch.bincount(correct, minlength=classes)
            seen += torch.bincount(y.cpu(), minlength=classes)
            loss[0] += F.cross_entropy(logits, y, reduction="sum").cpu()
    return ClassCounts(hits, seen, float(loss[0] / seen.sum().clamp(min=1)))
