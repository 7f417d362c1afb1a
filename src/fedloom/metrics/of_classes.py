"""Metrics of classification, from the probabilities of the classes.

Each function takes `predictions`, a row of probabilities for each sample, and `targets`, the class
indices. It computes in float64 and returns NaN where the metric is not defined.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedloom.metrics.ranking import area_under_roc

CALIBRATION_BINS = 15


def auroc(predictions: Tensor, targets: Tensor) -> float:
    """Area under the ROC curve: of class 1 if there are two, else one against the rest.

    The mean over the classes that the targets have; NaN if they are all of one class.
    """
    columns = [1] if predictions.shape[1] == 2 else range(predictions.shape[1])
    areas = [area_under_roc(predictions[:, c], targets == c) for c in columns]
    return mean_of_defined(areas)


def macro_f1(predictions: Tensor, targets: Tensor) -> float:
    """F1 of each class, averaged over the classes that were predicted or are in the targets."""
    hits, predicted, seen = _class_counts(predictions, targets)
    occurs = predicted + seen > 0
    return float((2 * hits[occurs] / (predicted + seen)[occurs]).mean())


def balanced_accuracy(predictions: Tensor, targets: Tensor) -> float:
    """Recall of each class, averaged over the classes that the targets have."""
    hits, _, seen = _class_counts(predictions, targets)
    return float((hits[seen > 0] / seen[seen > 0]).mean())


def calibration_error(predictions: Tensor, targets: Tensor) -> float:
    """Expected calibration error: how far confidence is from accuracy, in 15 bins of equal width.

    Confidence is the probability of the predicted class. With n_b of n samples in bin b:

        sum_b  n_b / n  |accuracy(b) - confidence(b)|
    """
    confidence, predicted = predictions.double().max(1)
    edges = torch.linspace(0, 1, CALIBRATION_BINS + 1, dtype=torch.float64)
    bins = torch.bucketize(confidence, edges[1:-1])
    gaps = (predicted == targets).double() - confidence
    # within a bin the gaps add up to n_b (accuracy - confidence)
    totals = torch.zeros(CALIBRATION_BINS, dtype=torch.float64).index_add_(0, bins, gaps)
    return float(totals.abs().sum() / len(gaps)) if len(gaps) else math.nan


def mean_of_defined(values: list[float]) -> float:
    """The mean without the NaN; NaN if nothing else is there."""
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def _class_counts(predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By class: samples classified correctly, predictions of the class, and samples of it."""
    classes, predicted = predictions.shape[1], predictions.argmax(1)
    of = (targets[predicted == targets], predicted, targets)
    hits, guessed, seen = (torch.bincount(c, minlength=classes).double() for c in of)
    return hits, guessed, seen
