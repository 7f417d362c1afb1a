"""Partitions of the training data among clients: pure functions of the labels and a key.

Every partition takes bounded time, is disjoint and leaves no client empty; if that is impossible,
it raises an error. A spec may carry `legacy_seed`, the NumPy seed of a published split, to
reproduce the authors' draw.
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
from fedloom.data.partition.draws import stream
from fedloom.data.partition.published import SEEDS, fedafa
from fedloom.data.partition.simple import classes, iid, quantity, shards, user
from fedloom.data.parts import Parts, all_rows, part_sizes

__all__ = ["GIVEN", "PARTITIONS", "WITHOUT_CLASSES", "check", "complete", "partition", "stream"]

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
# Partitions that do not look at the labels.
WITHOUT_CLASSES = frozenset({"iid", "quantity", "user"})
# Arguments filled in by `partition`, never by a config.
GIVEN = frozenset({"labels", "clients", "rng", "users", "generator", "key"})


def check(spec: Spec) -> None:
    """Reject an unknown partition or wrong arguments, all at once and before any data are read."""
    if spec.name not in PARTITIONS:
        raise unknown_name("partition", spec.name, PARTITIONS)
    seed, args = _split_off_seed(spec)
    problems = argument_problems(PARTITIONS[spec.name], args, GIVEN) + argument_problems(
        stream, seed, GIVEN
    )
    raise_all(problems, f"partition '{spec.name}'")


def complete(spec: Spec) -> Spec:
    """The spec with the defaults of the parameters that it leaves out, as titles show it.

    The smallest size of a client is shown only if it was set: it is a safeguard.

    >>> str(complete(Spec("dirichlet"))), str(complete(Spec("iid")))
    ('dirichlet(alpha=0.5)', 'iid')
    """
    if spec.name not in PARTITIONS:
        return spec
    known = parameters(PARTITIONS[spec.name]).items()
    defaults = {n: p.default for n, p in known if n not in GIVEN and not p.required}
    shown = {name: value for name, value in defaults.items() if name != "min_size"}
    return Spec(spec.name, {**shown, **spec.args})


def partition(
    spec: Spec,
    labels: np.ndarray,
    clients: int | None,
    key: Key,
    users: np.ndarray | None = None,
    longtail: float = 1.0,
) -> Parts:
    """The rows of every client; clients=None or 0 means everyone, for 'user' only.

    `longtail` > 1 first subsamples the data to that imbalance factor, from the same stream as
    FedAFA does; 1 keeps all.
    """
    check(spec)
    _check_input(spec.name, labels, clients or 0)
    seed, args = _split_off_seed(spec)
    rng = stream(key, **seed)
    kept = tail.kept_rows(labels, longtail, rng)
    available = {
        "labels": labels if kept is None else labels[kept],
        "clients": clients or 0,
        "rng": rng,
        "users": users if users is None or kept is None else users[kept],
        "generator": torch.Generator().manual_seed(seed["legacy_seed"]) if seed else None,
    }
    function = PARTITIONS[spec.name]
    given = {name: available[name] for name in parameters(function) if name in available}
    parts = call("partition", spec.name, function, args, **given)
    _check_parts(parts, len(labels) if kept is None else len(kept), spec.name)
    return parts if kept is None else [kept[rows] for rows in parts]


def _split_off_seed(spec: Spec) -> tuple[dict[str, Any], dict[str, Any]]:
    """{"legacy_seed": ...} if the spec has one or names a published split, and the other args."""
    args = dict(spec.args)
    legacy_seed = args.pop("legacy_seed", SEEDS.get(spec.name))
    return {} if legacy_seed is None else {"legacy_seed": legacy_seed}, args


def _check_input(name: str, labels: np.ndarray, clients: int) -> None:
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu":
        raise UserError(
            f"partition '{name}': labels must be a non-empty one-dimensional array of integers, "
            f"not {labels.dtype} {labels.shape}"
        )
    if clients < 0 or (clients == 0 and name != "user"):
        raise UserError(
            f"partition '{name}': clients={clients} must be at least 1 "
            "(0, everyone, is for 'user' only)"
        )


def _check_parts(parts: Parts, samples: int, name: str) -> None:
    """Raise unless the parts are disjoint, in range and without an empty client."""
    rows, held = all_rows(parts), np.zeros(samples, dtype=bool)
    is_in_range = rows.min(initial=0) >= 0 and rows.max(initial=0) < samples
    if is_in_range:
        held[rows] = True
    if not is_in_range or np.count_nonzero(held) < len(rows):
        raise RuntimeError(
            f"partition '{name}' returned rows twice or outside the {samples} samples; "
            "this is a bug"
        )
    if not part_sizes(parts).all():
        raise RuntimeError(f"partition '{name}' left a client empty; this is a bug")
