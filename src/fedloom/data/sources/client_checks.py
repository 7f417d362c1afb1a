"""Natural clients that are hardly worth a client: of a few samples, or of a single class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedloom.data.dataset import Dataset
from fedloom.data.sources.errors import shortened

FEW_SAMPLES = 10  # fewer than this, in both splits together, are worth a warning
NAMED = 5  # clients in a warning


def doubtful_clients(dataset: Dataset) -> Iterator[str]:
    """A sentence for each kind of client that is worth a warning.

    Users who have test samples only are no clients.
    """
    if dataset.train.users is None:
        return
    clients, labels = dataset.train.users.numpy(), dataset.train.labels
    count = int(clients.max()) + 1  # the users of the training split come first
    if dataset.test.users is not None:
        users = dataset.test.users.numpy()
        clients = np.concatenate([clients, users[users < count]])
        labels = np.concatenate([labels, dataset.test.labels[users < count]])
    sizes = np.bincount(clients, minlength=count)
    yield from _hardly_repeating(sizes) or _small(dataset.users, sizes)
    if dataset.task == "classification":
        yield from _of_one_class(dataset, clients, labels, sizes)


def _hardly_repeating(sizes: np.ndarray) -> list[str]:
    """Most ids occur once: they may number the rows instead of naming clients."""
    single = int((sizes == 1).sum())
    if 2 * single <= len(sizes):
        return []
    return [
        f"{single} of {len(sizes)} clients have a single sample, so the ids may number the samples "
        "instead of naming clients; check which column or array names them"
    ]


def _small(names: Sequence[str], sizes: np.ndarray) -> list[str]:
    small = np.flatnonzero((sizes < FEW_SAMPLES) & (sizes > 0)).tolist()
    if not small:
        return []
    listed = shortened((f"'{names[c]}' ({sizes[c]})" for c in small), NAMED)
    return [
        f"few samples at {len(small)} of {len(sizes)} clients (fewer than {FEW_SAMPLES}, training "
        f"and test together): {listed}; the partition 'user(min_size={FEW_SAMPLES})' leaves out "
        "clients with fewer training samples"
    ]


def _of_one_class(
    dataset: Dataset, users: np.ndarray, labels: np.ndarray, sizes: np.ndarray
) -> list[str]:
    """Clients that have a choice of samples but not of classes; smaller ones are named above."""
    pairs = np.unique(users * len(dataset.classes) + labels)
    owners, classes = np.divmod(pairs, len(dataset.classes))
    classes_of = np.bincount(owners, minlength=len(sizes))
    is_single = (classes_of[owners] == 1) & (sizes[owners] >= FEW_SAMPLES)
    if not is_single.any():
        return []
    listed = shortened(
        (
            f"'{dataset.users[c]}' ('{dataset.classes[k]}' in all {sizes[c]} samples)"
            for c, k in zip(owners[is_single], classes[is_single], strict=True)
        ),
        NAMED,
    )
    return [
        f"a single class at {int(is_single.sum())} of {len(sizes)} clients: {listed}; "
        "check that their labels are complete"
    ]
