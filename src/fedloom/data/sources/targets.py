"""Targets of tasks other than classification: real numbers, labels of 0 and 1, tokens.

Every reader takes `task`. A target that does not fit it is rejected with a message that names the
task that it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from fedloom.core.errors import UserError
from fedloom.core.learning_task import IGNORED
from fedloom.core.spec import Param
from fedloom.data.sources.errors import data_error
from fedloom.data.sources.missing_values import is_missing_value

TaskOption = Annotated[
    Literal["classification", "multilabel", "regression", "next-token"],
    Param("what is learned: one class per sample, several labels of 0 and 1, numbers, or tokens"),
]
# With more distinct values than this, and than a tenth of the samples, numbers are not classes.
MAX_CLASSES = 100
SAMPLES_OF_NUMBERED = 5  # per class, on average, if classes are numbered 0, 1, 2, ...
FOR_NUMBERS = (
    "this looks like a target for regression: set task=regression, or sort the values into classes "
    "first"
)
FOR_COLUMNS = (
    "set task=multilabel if they are labels of 0 and 1, or task=regression to predict numbers"
)
LARGEST = float(np.finfo(np.float32).max)
LARGEST_TOKEN = 2**22 - 1  # vocabularies have some 100,000 tokens
MAX_ROUNDING = 1e-3  # of targets to float32, in units of their standard deviation


def looks_measured(labels: np.ndarray) -> bool:
    """Whether these are not classes: some have fractions, or nearly every sample has its own."""
    if labels.dtype.kind == "f" and (labels != np.floor(labels)).any():
        return True
    values = np.unique(labels)
    if len(values) == len(labels) > 2:
        return True
    # 0, 1, 2, ... without a gap is how classes are numbered, if there are some samples of each
    is_numbered = values.dtype.kind in "iuf" and values[0] == 0 and values[-1] == len(values) - 1
    each = SAMPLES_OF_NUMBERED if is_numbered else 10
    return len(values) > max(MAX_CLASSES, len(labels) // each)


def check_no_measurements(y: np.ndarray, where: object) -> None:
    """Reject numbers that look like a target for regression, instead of taking them as classes."""
    if y.dtype.kind in "iuf" and y.ndim == 1 and np.isfinite(y).all() and looks_measured(y):
        found = f"{len(np.unique(y))} different numbers in {len(y)} samples"
        insist = "if they are classes after all, pass their names as text: y.astype(str)"
        raise data_error(where, found, "classes", f"{FOR_NUMBERS}; {insist}")


def targets_of(task: str, y: np.ndarray, where: object) -> np.ndarray:
    """The targets of a task other than classification in the form in which they are stored."""
    if y.dtype.kind == "O":
        y = _plain(y, where)
    if y.dtype.kind == "U" and y.size:
        value, sample = _first_text(y)
        remedy = "replace it by a number, leave the sample out, or use task=classification"
        raise data_error(where, f"the target {value!r} of sample {sample}", "a number", remedy)
    if y.dtype.kind not in "biuf":
        remedy = "replace them by numbers, or use task=classification"
        raise data_error(where, f"targets of type {y.dtype}", "numbers", remedy)
    return {"regression": _numbers, "multilabel": _labels, "next-token": _tokens}[task](y, where)


def _plain(y: np.ndarray, where: object) -> np.ndarray:
    """A column of Python objects as an array of numbers."""
    missing = np.argwhere(np.reshape([is_missing_value(value) for value in y.flat], y.shape))
    if len(missing):
        found = f"{len(missing)} missing values (the first is in sample {missing[0][0]})"
        raise data_error(where, found, "a target per sample", "fill in or leave out the samples")
    return np.array(y.tolist())


def _first_text(y: np.ndarray) -> tuple[str, int]:
    """The first target that is not a number, or that is written as text, and its sample."""
    for place, value in np.ndenumerate(y):
        try:
            float(value)
        except ValueError:
            return str(value), place[0]
    return str(y.flat[0]), 0


def _numbers(y: np.ndarray, where: object) -> np.ndarray:
    if y.ndim not in (1, 2) or not y.shape[-1]:
        remedy = "give one number per sample, or one column for each thing to predict"
        raise data_error(where, f"targets of shape {y.shape}", "(samples,)", remedy)
    is_bad = ~(np.abs(y.astype(np.float64)) <= LARGEST)
    if is_bad.any():
        sample = int(np.argwhere(is_bad)[0][0])
        raise bad_number(y[sample], f"of sample {sample}", where)
    _check_rounding(y.reshape(len(y), -1).astype(np.float64), where)
    return (y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y).astype(np.float32)


def bad_number(value: object, place: str, where: object) -> UserError:
    """The error for a target that is not a number, or too large."""
    expected, remedy = "a finite number", "fill it in or leave it out"
    if np.isfinite(np.asarray(value)).all():
        expected = f"a number that fits into float32, up to {LARGEST:.3g}"
        remedy = "use another unit, such as its logarithm"
    return data_error(where, f"the target {value} {place}", expected, remedy)


def _check_rounding(columns: np.ndarray, where: object) -> None:
    """Reject targets that differ by little compared with their size: float32 would merge them."""
    rounding = np.abs(columns - columns.astype(np.float32)).max(0, initial=0.0)
    differ = (columns != columns[:1]).any(0)  # the std of equal numbers may come out above 0
    deviation = np.where(differ, columns.std(0), 0.0)
    for mean, std, step in zip(columns.mean(0), deviation, rounding, strict=True):
        if 0 < std * MAX_ROUNDING < step:
            found = (
                f"targets around {mean:.6g} with a standard deviation of {std:.3g}, which rounding "
                f"to float32 changes by up to {step:.3g}"
            )
            remedy = f"subtract a constant from them, such as {mean:.0f}, or use another unit"
            raise data_error(where, found, "numbers that float32 tells apart", remedy)


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
    if (y == IGNORED).all():
        found, remedy = f"only the target {IGNORED}", "give some positions the token that follows"
        raise data_error(where, found, "tokens to predict", remedy)
    _check_largest(y, where)
    return y.astype(np.int64)


def _check_largest(tokens: np.ndarray, where: object) -> None:
    """Reject numbers such as hashes: a model has an output for each number up to the largest."""
    if tokens.size and (largest := int(tokens.max())) > LARGEST_TOKEN:
        found, expected = f"the token {largest}", f"token numbers up to {LARGEST_TOKEN}"
        raise data_error(where, found, expected, "number the tokens that occur 0, 1, 2, ...")


def check_positions(x: np.ndarray, y: np.ndarray, where: object) -> None:
    """Reject samples whose tokens do not fit the targets, or are too large for token numbers."""
    _check_largest(x, where)
    if x.shape != y.shape:
        found = f"samples of shape {x.shape[1:]} and targets of shape {y.shape[1:]}"
        remedy = f"give a target to every position of a sample, or {IGNORED} where none counts"
        raise data_error(where, found, "the same shape", remedy)


def check_same_form(train: np.ndarray, test: np.ndarray, where: object) -> None:
    """Reject a test split whose number of targets per sample differs from the training split."""
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
