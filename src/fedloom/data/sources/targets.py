"""Targets of tasks other than classification: real numbers, labels of 0 and 1, tokens.

Every reader takes `task`, and a target that does not fit it is refused with the task that it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedloom.core.learning_task import IGNORED
from fedloom.core.spec import Param
from fedloom.data.sources.errors import data_error

TaskOption = Annotated[
    Literal["classification", "multilabel", "regression", "next-token"],
    Param("what is learned: one class per sample, several labels of 0 and 1, numbers, or tokens"),
]
# Numbers with more distinct values than this, and than a tenth of the samples, are no classes.
MAX_CLASSES = 100
FOR_NUMBERS = (
    "this looks like a target for regression: set task=regression, or sort the values into classes "
    "first"
)
FOR_COLUMNS = (
    "set task=multilabel if they are labels of 0 and 1, or task=regression to predict numbers"
)
LARGEST = float(np.finfo(np.float32).max)


def looks_measured(labels: np.ndarray) -> bool:
    """Whether these are no classes: they have fractions, or nearly every sample has its own."""
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        return True
    distinct = len(np.unique(labels))
    return distinct > max(MAX_CLASSES, len(labels) // 10) or distinct == len(labels) > 2


def check_no_measurements(y: np.ndarray, where: object) -> None:
    """Refuse floats that look like a target for regression, instead of taking them as classes."""
    if y.dtype.kind == "f" and y.ndim == 1 and np.isfinite(y).all() and looks_measured(y):
        found = f"{len(np.unique(y))} different numbers in {len(y)} samples"
        raise data_error(where, found, "classes", FOR_NUMBERS)


def targets_of(task: str, y: np.ndarray, where: object) -> np.ndarray:
    """The targets of a task other than classification in the form in which they are stored."""
    if y.dtype.kind == "O":
        y = _plain(y, where)
    if y.dtype.kind not in "biuf":
        remedy = "replace them by numbers, or use task=classification"
        raise data_error(where, f"targets of type {y.dtype}", "numbers", remedy)
    return {"regression": _numbers, "multilabel": _labels, "next-token": _tokens}[task](y, where)


def _plain(y: np.ndarray, where: object) -> np.ndarray:
    """A column of Python objects as an array of numbers."""
    missing = np.flatnonzero([value is None for value in y.flat])
    if len(missing):
        found = f"{len(missing)} missing values (the first is in sample {missing[0]})"
        raise data_error(where, found, "a target per sample", "fill in or leave out the samples")
    return np.array(y.tolist())


def _numbers(y: np.ndarray, where: object) -> np.ndarray:
    if y.ndim not in (1, 2) or not y.shape[-1]:
        remedy = "give one number per sample, or one column for each thing to predict"
        raise data_error(where, f"targets of shape {y.shape}", "(samples,)", remedy)
    is_bad = ~(np.abs(y.astype(np.float64)) <= LARGEST)
    if is_bad.any():
        sample = int(np.argwhere(is_bad)[0][0])
        found, remedy = f"the target {y[sample]} of sample {sample}", "fill it in or leave it out"
        raise data_error(where, found, "a finite number", remedy)
    return (y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y).astype(np.float32)


def _labels(y: np.ndarray, where: object) -> np.ndarray:
    if y.ndim != 2:
        remedy = "give one column per label, or use task=classification for one class per sample"
        raise data_error(where, f"labels of shape {y.shape}", "(samples, labels)", remedy)
    is_bad = (y != 0) & (y != 1)
    if is_bad.any():
        sample, label = np.argwhere(is_bad)[0]
        found = f"the value {y[sample, label]} in column {label} of sample {sample}"
        remedy = "write 1 for a label that a sample has and 0 for the others"
        raise data_error(where, found, "0 or 1", f"{remedy}; numbers need task=regression")
    return y.astype(np.float32)


def _tokens(y: np.ndarray, where: object) -> np.ndarray:
    if y.ndim != 2:
        remedy = "give the next token of every position, such as (tokens[:, :-1], tokens[:, 1:])"
        raise data_error(where, f"targets of shape {y.shape}", "(samples, positions)", remedy)
    is_bad = (y != np.floor(y)) | ((y < 0) & (y != IGNORED))
    if is_bad.any():
        found = f"the target {y[tuple(np.argwhere(is_bad)[0])]}"
        expected = f"token numbers from 0, or {IGNORED} for a position that does not count"
        raise data_error(where, found, expected, "number the tokens")
    return y.astype(np.int64)


def check_same_form(train: np.ndarray, test: np.ndarray, where: object) -> None:
    """Refuse a test split with another number of targets per sample than the training split."""
    if train.shape[1:] != test.shape[1:]:
        found, expected = f"targets of shape {test.shape[1:]}", f"{train.shape[1:]} as in training"
        raise data_error(where, found, expected, "give both splits the same targets")


def output_count(task: str, x: np.ndarray, y: np.ndarray) -> int:
    """How many outputs a model needs: one per label or target, or per token that occurs."""
    if task == "next-token":
        return int(max(x.max(), y.max())) + 1
    return 1 if y.ndim == 1 else int(y.shape[1])


def output_names(task: str, count: int, names: Sequence[str], where: object) -> tuple[str, ...]:
    """What each output of a model is called: a label, a target or a token.

    names: those that were given.
    """
    if names and (len(names) < count if task == "next-token" else len(names) != count):
        found = f"{len(names)} names for {count} outputs"
        raise data_error(where, found, "one name for each", "name all of them, or none")
    if names:
        return tuple(names)
    if task == "next-token":
        return tuple(map(str, range(max(count, 2))))
    word = "label" if task == "multilabel" else "target"
    return (word,) if count == 1 else tuple(f"{word} {n}" for n in range(1, count + 1))
