"""The trackers by name, as `--track NAME[=WHERE]` writes them; imported when they are built."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedloom.core.errors import UserError, unknown_name

if TYPE_CHECKING:
    from fedloom.trackers.tracker import Tracker

TRACKERS = {
    "tensorboard": "fedloom.trackers.tensorboard:TensorBoard",
    "mlflow": "fedloom.trackers.mlflow:MLflow",
    "wandb": "fedloom.trackers.wandb:WandB",
}


def names() -> list[str]:
    """All trackers."""
    return list(TRACKERS)


def build(name: str, where: str | Path | None = None, *, clients: bool = False) -> Tracker:
    """The tracker of that name, for the callbacks of a run.

    where: a folder, an address or a project, as the tracker takes it. clients: also write a score
    for each client at the end. Raises UserError for an unknown name or a missing package.
    """
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    module, _, kind = TRACKERS[name].partition(":")
    built: Tracker = getattr(importlib.import_module(module), kind)(where, clients=clients)
    return built


def build_all(texts: Sequence[str], clients: bool = False) -> list[Tracker]:
    """The trackers that --track names; each text is NAME or NAME=WHERE."""
    for text in texts:
        if texts.count(text) > 1:
            raise UserError(f"--track {text} is given twice; leave one out")
    if clients and not texts:
        raise UserError(f"--track-clients needs a tracker; add --track with {_choices()}")
    return [_parsed(text, clients) for text in texts]


def _parsed(text: str, clients: bool) -> Tracker:
    name, equals, where = text.partition("=")
    if equals and not where:
        raise UserError(f"--track {text} names no place; leave out the =, or write {name}=WHERE")
    return build(name, where or None, clients=clients)


def _choices() -> str:
    *first, last = TRACKERS
    return f"{', '.join(first)} or {last}"
