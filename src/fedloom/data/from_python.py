"""Data sets from Python values: arrays, torch Datasets, DataFrames and HuggingFace Datasets.

Features reach the model as they were passed, as float32: nothing is standardised. Only bytes
(uint8 images and volumes), and what kind= says are signals or volumes, are normalised, with the
mean and std per channel of the training split, as the readers of files do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedloom.core.errors import UserError
from fedloom.core.learning_task import learning_task
from fedloom.core.warn import warn_user
from fedloom.data.dataset import Dataset
from fedloom.data.identity import identity_sha256
from fedloom.data.sources.assemble import Assembly, dataset_from_samples
from fedloom.data.sources.checks import constant_targets
from fedloom.data.sources.python_values import Options, read_values, reject_options
from fedloom.data.sources.torch_dataset import check_test_share
from fedloom.data.tasks import with_task

DEFAULT_TEST_SHARE = 0.2


def as_dataset(
    data: Any,
    *,
    test: Any = None,
    client_ids: Any = None,
    target: str | Sequence[str] | None = None,
    client: str | None = None,
    kind: str | None = None,
    channels: str | None = None,
    name: str | None = None,
    test_share: float = DEFAULT_TEST_SHARE,
    seed: int = 0,
    task: str = "classification",
) -> Dataset:
    """The data set of values from Python.

    data        (X, y) of arrays, tensors or nested lists; a map-style torch Dataset of (x, y); a
                DataFrame; a HuggingFace Dataset or DatasetDict; or a fedloom Dataset, which is
                returned as it is, without other options.
    test        the test split, in the same form as data. Without it a share `test_share` of each
                class (of each client's samples, if there are client ids) is held out: every k-th
                sample for seed 0, for another seed every k-th after shuffling.
    client_ids  one id (int or str) per sample of `data`, for the partition "user".
    target      DataFrames and HuggingFace Datasets: the column with the labels; of a DataFrame also
                a list of columns, for multilabel and for regression of several numbers.
    client      likewise: the column with the client ids.
    kind        (X, y) and torch Datasets: "signal" for (N,L) or (N,C,L), "volume" for (N,D,H,W) or
                (N,C,D,H,W), "image", "table", or "text" for whole numbers (N,T), the tokens of
                texts; by default the shape and the type decide.
    channels    signals and volumes: "last" if the channels are the last axis.
    task        what is learned: "classification"; "multilabel", y of 0 and 1, (N, labels);
                "regression", y of numbers, (N,) or (N, numbers); or "next-token", X and y of token
                numbers, (N, positions).
    name        by default "python:arrays-" and the start of the digest of the content.

    X of type uint8 with shape (N,H,W), (N,H,W,C) or (N,C,H,W) are images, with five axes volumes,
    and are normalised; so are signals and volumes named by `kind`. All other X keep shape and
    values, as float32. Labels are numbers or strings; the distinct ones, sorted, are the classes.
    Text columns of a DataFrame are one-hot encoded (columns.py); a missing number becomes the
    median of the training rows, and an extra 0/1 column marks it.
    """
    options = Options(client_ids, target, client, kind, channels, task)
    if isinstance(data, Dataset):
        given = {
            "test": test is not None,
            **options.given("client_ids", "target", "client", "kind", "channels"),
            "name": name is not None,
            "test_share": test_share != DEFAULT_TEST_SHARE,
            "seed": seed != 0,
        }
        reject_options(given, "a fedloom Dataset already has its splits, clients and name")
        return with_task(data, task)
    check_test_share(test_share)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UserError(f"seed={seed!r} must be a whole number (0 holds out every k-th sample)")
    learning_task(task)  # raises if there is no such task, before anything is read
    train_samples, test_samples = read_values(data, test, options)
    about = {"format": "python", "source": type(data).__name__}
    how = Assembly(test_share, seed, task=task)
    dataset = dataset_from_samples("", train_samples, test_samples, how, about)
    for warning in constant_targets(dataset):
        warn_user(f"data: {warning}")
    return replace(dataset, name=name or f"python:arrays-{content_digest(dataset)[:12]}")


def content_digest(dataset: Dataset) -> str:
    """The sha256 of the samples, labels, users, class names and constants, as hex digits.

    The name and `about` do not count.
    """
    return identity_sha256(dataset)
