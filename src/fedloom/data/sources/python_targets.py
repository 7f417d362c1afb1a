"""Targets that were passed from Python: labels of any type, numbers, or tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedloom.data.sources.errors import data_error
from fedloom.data.sources.labels import check_whole
from fedloom.data.sources.missing_values import is_missing_value
from fedloom.data.sources.targets import FOR_COLUMNS, check_no_measurements, targets_of


def python_targets(y: np.ndarray, where: str, task: str) -> np.ndarray:
    """The labels of classes, or the targets of another task as they are stored."""
    if task != "classification":
        return targets_of(task, y, where)
    return _label_values(y, where)


def _label_values(y: np.ndarray, where: str) -> np.ndarray:
    """The labels as int64, bool or text, one per sample."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        remedy = (
            f"give one class label per sample (for one-hot labels y.argmax(1)), or {FOR_COLUMNS}"
        )
        raise data_error(where, f"labels of shape {y.shape}", "one dimension", remedy)
    if y.dtype.kind == "O":
        y = _plain_labels(y.tolist(), where)
    if y.dtype.kind in "iuf":
        check_whole(y, where, "a whole number or a string")
        if y.dtype.kind == "f":
            check_no_measurements(y, where)
        return y.astype(np.int64)
    if y.dtype.kind not in "bU":
        remedy = "replace each label by the number or name of its class"
        raise data_error(where, f"labels of type {y.dtype}", "whole numbers or strings", remedy)
    return y


def _plain_labels(values: Sequence[Any], where: str) -> np.ndarray:
    """A list of labels as an array of numbers or of text."""
    missing = [i for i, value in enumerate(values) if is_missing_value(value)]
    if missing:
        found = f"{len(missing)} samples without a label (the first is sample {missing[0]})"
        raise data_error(where, found, "one per sample", "fill them in or leave the samples out")
    types = {"text" if isinstance(value, str) else "numbers" for value in values}
    if len(types) > 1:
        remedy = "convert all labels to strings"
        raise data_error(where, "labels of numbers and text mixed", "only one of the two", remedy)
    return np.array(values)


def token_numbers(x: np.ndarray, where: str) -> np.ndarray:
    """The tokens that a model reads, as int64 (samples, positions)."""
    if x.ndim != 2 or x.dtype.kind not in "iu" or (x.astype(np.int64) < 0).any():
        found = f"X of type {x.dtype} and shape {x.shape}"
        expected = "token numbers from 0, (samples, positions)"
        raise data_error(where, found, expected, "number the tokens, as integers")
    return x.astype(np.int64)
