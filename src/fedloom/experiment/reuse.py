"""Reuse of rounds: methods such as fine-tuning differ only in what follows the last round.

A run copies state, memories and metrics of a finished run with the same rounds and continues after
them. Its result is bit for bit the one it would have reached alone, so five ways to personalise a
model cost one training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.core.method import Method
from fedloom.core.spec import Spec
from fedloom.experiment.identity import stored_identity
from fedloom.experiment.stored_run import is_finished
from fedloom.methods.registry import build
from fedloom.runs.folder import RunFolder
from fedloom.runs.folder_layout import CONFIG
from fedloom.settings.config import Config, load_file
from fedloom.settings.difference import first_difference

# Settings that the bits of a round do not depend on; of the method, those that leave rounds alone.
IRRELEVANT = ("method", "workers", "checkpoint_every")


def leaves_rounds_unchanged(spec: Spec) -> bool:
    """Whether a method changes nothing during the rounds: FedAvg, or one with only a finale."""
    if spec == Spec("fedavg"):
        return True
    rounds = replace(build([spec]), name="", finale=(), needs=(), tasks=None, fixed_loss=False)
    return rounds == Method("")


def rounds_key(config: Config) -> str | None:
    """Equal for runs that are the same until their last round.

    None if no other run can have the same rounds: personal models are scored on the way.
    """
    if config.evaluate.personal_every:
        return None
    active = [str(spec) for spec in config.method_specs if not leaves_rounds_unchanged(spec)]
    settings = config.model_dump(mode="json", exclude=set(IRRELEVANT))
    return json.dumps([active, settings], sort_keys=True)


def same_rounds(one: Config, other: Config) -> bool:
    """Whether two runs are the same until their last round."""
    key = rounds_key(one)
    return key is not None and key == rounds_key(other)


def find_run_with_same_rounds(config: Config, others: Iterable[Path]) -> Path | None:
    """The first of these runs that is finished and has the same rounds."""
    for path in others:
        if not (path / CONFIG).exists():
            continue
        same = same_rounds(config, load_file(path / CONFIG)) and not _edited(config, path)
        if same and is_finished(path):
            return path
    return None


def check_same_rounds(config: Config, path: Path) -> None:
    """Raise if a run is not finished, or if its rounds are not those of the settings."""
    if not is_finished(path):
        raise UserError(f"the run in '{path}' is not finished; first: fedloom resume {path}")
    theirs = load_file(path / CONFIG)
    if (difference := first_difference(theirs, config, IRRELEVANT)) is not None:
        raise UserError(
            f"'{path}' has other rounds than this run: {difference}; "
            f"use its settings with --config {path / CONFIG}"
        )
    for place in _edited(config, path):
        raise UserError(
            f"the rounds of '{path}' were made with an earlier version of '{place}'; "
            "leave out --rounds-of"
        )
    if every := config.evaluate.personal_every:
        raise UserError(
            f"evaluate.personal_every={every} scores personal models during the rounds, "
            "so they cannot be copied; leave it out"
        )
    if not same_rounds(config, theirs):
        raise UserError(
            f"the rounds of '{path}' are those of {theirs.title}, and {config.title} has others; "
            "add a method that only follows the rounds, for example finetune"
        )


def _edited(config: Config, path: Path) -> list[str]:
    """The user's own files that have changed since that run."""
    identity = stored_identity(path)
    return [] if identity is None else identity.edited(config.code())


def copy_rounds(folder: RunFolder, path: Path) -> None:
    """Copy the rounds of a finished run into a folder that has none yet."""
    with RunFolder.read_only(path) as other, folder.copying_rounds():
        restored = other.restore()
        assert restored is not None  # it is finished
        for line in other.metrics():
            folder.append_metrics(line)
        folder.store.copy_from(other.store)
        folder.save(restored.state, restored.manifest.identity, **restored.manifest.extra)
