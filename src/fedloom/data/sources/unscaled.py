"""Data as the files hold them, before any constant is computed from them.

A reader makes a data set of this by itself. A site in a deployment scales and encodes its samples
with constants that it has agreed on with the other sites (deploy/site/data.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedloom.data.dataset import Dataset, Kind
from fedloom.data.sources.frames import Frame


@dataclass(frozen=True)
class Unscaled:
    """All samples of a source, training and test split together.

    x        samples as they are stored, or the columns of a table.
    y        the class of each sample, a position in `classes`.
    classes  their names; numbered: whether the names are numbers that were put in order as such.
    users    the name of each sample's user, if the source has users.
    test     the mask of the test split.
    about    as in Dataset.
    categorical   columns that are categories although they hold numbers.
    task     what the targets are for; of other tasks than classification, `classes` names the
             columns.
    """

    kind: Kind
    x: np.ndarray | Frame
    y: np.ndarray
    classes: tuple[str, ...]
    numbered: bool
    users: np.ndarray | None
    test: np.ndarray
    about: Mapping[str, str]
    categorical: Collection[str] = ()
    task: str = "classification"


def unscaled(dataset: Dataset) -> Unscaled:
    """The samples of a data set whose reader changes none of them: any but a table."""
    splits = dataset.train, dataset.test
    users = None
    if all(split.users is not None for split in splits):
        names = np.array(dataset.users)
        users = np.concatenate([names[s.users.numpy()] for s in splits if s.users is not None])
    return Unscaled(
        dataset.kind,
        np.concatenate([split.x.numpy() for split in splits]),
        np.concatenate([split.labels for split in splits]),
        dataset.classes,
        are_numbers(dataset.classes),
        users,
        np.repeat([False, True], [len(split) for split in splits]),
        dataset.about,
    )


def are_numbers(classes: Collection[str]) -> bool:
    """Whether all class names are whole numbers, which are put in order by value.

    >>> are_numbers(["0", "10"]), are_numbers(["no", "1"])
    (True, False)
    """
    return all(name.isdecimal() and name.isascii() for name in classes)
