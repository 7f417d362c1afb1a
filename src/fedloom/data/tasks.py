"""A data set for the task of a run: the one it was made for, or tokens of a text."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedloom.core.errors import UserError
from fedloom.data.dataset import Dataset, Split

TARGETS_ARE = {
    "classification": "classes",
    "multilabel": "several labels of 0 and 1",
    "regression": "numbers",
    "next-token": "tokens",
}


def with_task(dataset: Dataset, task: str) -> Dataset:
    """The data set with the targets of a task; raises UserError if it has others.

    Texts whose class is the next character also have the next character of every position.
    """
    if dataset.task == task:
        return dataset
    if task == "next-token" and dataset.kind == "text":
        train, test = (_next_tokens(split) for split in (dataset.train, dataset.test))
        return replace(dataset, train=train, test=test, task=task)
    raise UserError(
        f"the targets of '{dataset.name}' are {TARGETS_ARE[dataset.task]}, for "
        f"task={dataset.task}, and the task is {task}; set task={dataset.task}, or read the data "
        f"again with the targets of {task} (fedloom data add --option task={task}, or task= in "
        "Python)"
    )


def _next_tokens(split: Split) -> Split:
    return replace(split, y=torch.cat([split.x[:, 1:], split.y[:, None]], dim=1))
