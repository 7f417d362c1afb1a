"""Labels as class numbers: whole numbers, and the classes that they name."""

from __future__ import annotations

import numpy as np

from fedloom.data.sources.errors import data_error
from fedloom.data.sources.targets import FOR_COLUMNS, FOR_NUMBERS, check_no_measurements

# Labels are taken as class numbers if the highest is below this multiple of the distinct labels.
MAX_LABEL_GAP = 10
LARGEST = 2**53  # beyond it, floats are not exact


def check_whole(labels: np.ndarray, where: object, expected: str) -> None:
    """Refuse labels that are no whole numbers, instead of cutting off their fractions."""
    is_finite = np.isfinite(labels)
    is_whole = is_finite & (labels == np.floor(labels))
    if not is_whole.all():
        sample = int(np.flatnonzero(~is_whole)[0])
        found = f"label {labels[sample].item()} at sample {sample}"
        remedy = FOR_NUMBERS
        if not is_finite[sample]:
            remedy = "fill in the label or leave the sample out"
        raise data_error(where, found, expected, remedy)
    is_large = np.abs(labels.astype(np.float64)) > LARGEST
    if is_large.any():
        sample = int(np.flatnonzero(is_large)[0])
        found = f"label {labels[sample].item()} at sample {sample}"
        raise data_error(where, found, f"numbers up to {LARGEST}", "number the classes")


def class_numbers(y: np.ndarray, where: object) -> np.ndarray:
    """Labels that number the classes from 0, as int64."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    expected, remedy = "whole numbers from 0", "replace each label by the number of its class"
    if y.dtype.kind not in "biuf":
        raise data_error(where, f"labels of type {y.dtype}", expected, remedy)
    if y.ndim > 1:
        raise data_error(where, f"labels of shape {y.shape}", "one class per sample", FOR_COLUMNS)
    if y.dtype.kind != "b":
        check_whole(y, where, expected)
    if y.dtype.kind == "f":  # whole numbers of a file count as class numbers
        check_no_measurements(y, where)
    if (y < 0).any():
        raise data_error(where, f"label {y[y < 0][0].item()}", expected, remedy)
    return y.astype(np.int64)


def numbered_classes(train: np.ndarray, test: np.ndarray, where: object) -> np.ndarray:
    """The distinct labels of both splits: these are the classes, also if there are gaps.

    >>> numbered_classes(np.array([7, 0, 7]), np.array([0]), "").tolist()
    [0, 7]
    """
    distinct = len(np.unique(train))
    highest = int(max(train.max(), test.max()))
    if highest >= MAX_LABEL_GAP * distinct:
        raise data_error(
            where,
            f"labels up to {highest} but only {distinct} distinct ones",
            f"class numbers 0 to {distinct - 1}",
            "number the classes without gaps, or name all of them",
        )
    return np.unique(np.concatenate([train, test]))
