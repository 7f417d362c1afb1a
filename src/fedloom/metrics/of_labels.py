"""Metrics of multi-label classification, from the probabilities of the labels.

Each function takes `predictions`, a row of probabilities for each sample, and `targets`, 0 or 1 for
each label. A label is predicted if its probability is above one half. Each computes in float64 and
returns NaN where the metric is not defined.
"""

from __future__ import annotations

from torch import Tensor

from fedloom.metrics.of_classes import mean_of_defined
from fedloom.metrics.ranking import area_under_roc


def auroc(predictions: Tensor, targets: Tensor) -> float:
    """Area under the ROC curve, averaged over the labels that some samples have and others not."""
    columns = range(predictions.shape[1])
    return mean_of_defined(
        [area_under_roc(predictions[:, c], targets[:, c] > 0.5) for c in columns]
    )


def macro_f1(predictions: Tensor, targets: Tensor) -> float:
    """F1 of each label, averaged over the labels that were predicted or are in the targets.

    scikit-learn's with zero_division=nan. NaN if no label was predicted and none is there.
    """
    predicted, true = predictions > 0.5, targets > 0.5
    hits = (predicted & true).sum(0).double()
    named = (predicted.sum(0) + true.sum(0)).double()
    return float((2 * hits / named)[named > 0].mean())


def label_accuracy(predictions: Tensor, targets: Tensor) -> float:
    """The share of labels, over all samples, that are predicted as they are."""
    return float(((predictions > 0.5) == (targets > 0.5)).double().mean())
