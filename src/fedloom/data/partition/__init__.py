"""Who holds which samples: named partitions as pure functions of the labels and a key, in bounded time.

Every partition is disjoint and leaves no client empty, or is refused with a sentence. A word may carry `legacy_seed`, the
numpy seed of a published split, which then comes out as its authors drew it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from fedloom.core.errors import UserError, raise_all, unknown_name
from fedloom.core.key import Key
from fedloom.core.spec import Spec, argument_problems, call, parameters
from fedloom.data import longtail as tail
from fedloom.data.partition.balanced import dirichlet_balanced
from fedloom.data.partition.dirichlet import dirichlet, dirichlet_rounded
from fedloom.data.partition.draws import Parts, stream
from fedloom.data.partition.published import SEEDS, fedafa
from fedloom.data.partition.simple import classes, iid, quantity, shards, user

__all__ = ["GIVEN", "PARTITIONS", "check", "partition", "stream"]

PARTITIONS: Mapping[str, Callable[..., Parts]] = MappingProxyType(
    {
        "iid": iid,
        "dirichlet": dirichlet,
        "dirichlet-balanced": dirichlet_balanced,
        "dirichlet-rounded": dirichlet_rounded,
        "fedafa": fedafa,
        "classes": classes,
        "shards": shards,
        "quantity": quantity,
        "user": user,
    }
)
GIVEN = frozenset(
    {"labels", "clients", "rng", "users", "generator", "key"}
)  # filled in by `partition`, never by a config


def check(word: Spec) -> None:
    """Refuse an unknown partition or wrong arguments, all at once and before any data are read."""
    if word.name not in PARTITIONS:
        raise unknown_name("partition", word.name, PARTITIONS)
    seed, own = _split_seed(word)
    found = argument_problems(PARTITIONS[word.name], own, GIVEN) + argument_problems(stream, seed, GIVEN)
    raise_all(found, f"partition '{word.name}'")


def partition(
    word: Spec,
    labels: np.ndarray,
    clients: int | None,
    key: Key,
    users: np.ndarray | None = None,
    longtail: float = 1.0,
) -> Parts:
    """The rows of every client; clients=None or 0 means everyone, for 'user' only.

    `longtail` > 1 first thins the data to that imbalance factor with the same stream, as FedAFA does; 1 keeps all.
    """
    check(word)
    _check_input(word.name, labels, clients or 0)
    seed, own = _split_seed(word)
    rng = stream(key, **seed)
    kept = tail.subset(labels, longtail, rng)
    generator = torch.Generator().manual_seed(seed["legacy_seed"]) if seed else None
    whose = None if users is None else users[kept]
    offered = {
        "labels": labels[kept],
        "clients": clients or 0,
        "rng": rng,
        "users": whose,
        "generator": generator,
    }
    function = PARTITIONS[word.name]
    given = {name: offered[name] for name in parameters(function) if name in offered}
    parts = call("partition", word.name, function, own, **given)
    return [kept[rows] for rows in _sound(parts, len(kept), word.name)]


def _split_seed(word: Spec) -> tuple[dict[str, Any], dict[str, Any]]:
    """The published seed, if the word names one or stands for it, and the arguments of the partition itself."""
    named = {"legacy_seed": SEEDS.get(word.name), **word.args}["legacy_seed"]
    seed = {} if named is None else {"legacy_seed": named}
    return seed, {n: v for n, v in word.args.items() if n != "legacy_seed"}


def _check_input(name: str, labels: np.ndarray, clients: int) -> None:
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu":
        raise UserError(
            f"partition '{name}': labels must be a non-empty row of integers, not {labels.dtype} {labels.shape}"
        )
    if clients < 0 or (clients == 0 and name != "user"):
        raise UserError(
            f"partition '{name}': clients={clients} must be at least 1 (0, everyone, is for 'user' only)"
        )


def _sound(parts: Parts, samples: int, name: str) -> Parts:
    """The parts, once they are known to be disjoint, in range and without an empty client."""
    rows = np.concatenate(parts)
    if (
        rows.min(initial=0) < 0
        or rows.max(initial=0) >= samples
        or np.bincount(rows, minlength=samples).max() > 1
    ):
        raise RuntimeError(
            f"partition '{name}' gave rows twice or outside the {samples} samples; this is a defect"
        )
    if not all(map(len, parts)):
        raise RuntimeError(f"partition '{name}' left a client empty; this is a defect")
    return parts
