"""Metrics of regression, from the predicted values.

Each function takes `predictions` and `targets` with a row for each sample and a column for each
target, or a single dimension if there is one. Each computes in float64 and returns NaN where the
metric is not defined.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def mae(predictions: Tensor, targets: Tensor) -> float:
    """Mean absolute error, over all samples and targets."""
    return float(_errors(predictions, targets).abs().mean())


def rmse(predictions: Tensor, targets: Tensor) -> float:
    """Root of the mean squared error of each target; the mean over the targets."""
    return float(_errors(predictions, targets).square().mean(0).sqrt().mean())


def r2(predictions: Tensor, targets: Tensor) -> float:
    """R squared, the share of the variance that is explained; the mean over the targets.

    Below 0 if the model is worse than the mean of the targets. As in scikit-learn, a target without
    variance counts 1 if it is predicted exactly and 0 otherwise, and a single sample gives NaN.
    """
    if len(targets) < 2:
        return math.nan
    values = _columns(targets)
    left = _errors(predictions, targets).square().sum(0)
    total = (values - values.mean(0)).square().sum(0)
    without_variance = (left == 0).double()
    return float(torch.where(total > 0, 1 - left / total, without_variance).mean())


def _errors(predictions: Tensor, targets: Tensor) -> Tensor:
    # the shapes (n,) and (n, 1) mean the same; broadcast against each other they give (n, n)
    return _columns(predictions) - _columns(targets)


def _columns(values: Tensor) -> Tensor:
    return values.double().unsqueeze(1) if values.dim() == 1 else values.double().flatten(1)
