"""What the clients of a run end with: scores of their own models, or of the server's where its method makes no others.

So methods that personalise and methods that do not stand side by side, and FedAvg is "no fine-tuning".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedloom.core.errors import UserError
from fedloom.experiment.build import partition_counts
from fedloom.methods.registry import build as build_method
from fedloom.metrics.curve import mean_of_all
from fedloom.metrics.records import BLANK, Own
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import Config
from fedloom.settings.overrides import read


def score_template(config: Config) -> Own | None:
    """Something of the form of what a run will tell; None where it will not."""
    return BLANK if config.evaluate.personal or not build_method(config.words).personal else None


def personal(path: Path) -> bool:
    """Whether the clients of a run have ended with models of their own."""
    return bool((RunFolder.read_only(path).result() or {}).get("own_models"))


def own(path: Path) -> Own | None:
    """The scores that the clients of a run end with; None before its end, and where they were not asked for."""
    with RunFolder.read_only(path) as run:
        result, lines = run.result(), run.metrics()
    if result is None or result.get("own_models"):
        return (result or {}).get("personal")
    last = [line for line in lines if "clients" in line][-1]
    return {**last["clients"], "per_class": last["per_class"], "groups": last["groups"]}


class ByClass(NamedTuple):
    """Recall by class of the rows of a comparison, what the classes are called, and what this is a picture of."""

    recalls: dict[str, list[float | None]]
    classes: list[str]
    title: str


def by_class(
    ends: Mapping[str, Sequence[Own]], runs: Mapping[str, Sequence[Path]], client: int | None = None
) -> ByClass | None:
    """Of rows, each with what its runs end with, the mean over seeds; None where there is nothing to compare."""
    if client is not None:
        return _of_client(ends, {name: paths[0] for name, paths in runs.items()}, client)
    sizes = {len(o["per_class"]) for seeds in ends.values() for o in seeds}
    if len(ends) < 2 or not all(ends.values()) or len(sizes) > 1:
        return None
    recalls = {
        n: [mean_of_all(each) for each in zip(*(o["per_class"] for o in seeds), strict=True)]
        for n, seeds in ends.items()
    }
    return ByClass(
        recalls,
        [str(c) for c in range(max(sizes))],
        "Recall by class, over the clients that have it",
    )


def _of_client(ends: Mapping[str, Sequence[Own]], runs: Mapping[str, Path], client: int) -> ByClass:
    """Of one client, the classes that it has."""
    counts = {name: held(path) for name, path in runs.items()}
    first, last = next(iter(counts.values())), min(map(len, counts.values())) - 1
    if not 0 <= client <= last:
        raise UserError(
            f"--client {client} is not one of the {last + 1} clients; take a number from 0 to {last}"
        )
    for name, other in counts.items():
        if not ends[name]:
            raise UserError(
                f"'{runs[name]}' has no scores of client {client}; finish it with evaluate.personal=true"
            )
        if not np.array_equal(other[client], first[client]):
            raise UserError(
                f"client {client} holds other data in '{runs[name]}'; compare runs of the same data, partition and seed"
            )
    has = np.flatnonzero(first[client]).tolist()
    recalls = {name: [_recall(seeds[0], client)[c] for c in has] for name, seeds in ends.items()}
    return ByClass(
        recalls,
        [f"{c}\n({first[client, c]})" for c in has],
        f"Recall by class of client {client} (training samples)",
    )


def _recall(found: Own, client: int) -> list[float | None]:
    """By class, of a client's model."""
    if "hits" not in found:  # the server's model is everybody's
        return list(found["per_class"])
    return [h / n if n else None for h, n in zip(found["hits"][client], found["seen"], strict=True)]


def held(path: Path) -> np.ndarray:
    """Training samples by client and class."""
    return partition_counts(read(path / CONFIG))[1]
