"""Rounds that another run has played already: fine-tuning and its kin differ only in what follows them.

A run takes them over, state, memories and metrics, and goes on behind them; its result is the one that it would have come to by
itself, bit for bit. So five ways to personalise a model cost one training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedloom.core.errors import UserError
from fedloom.core.method import Method
from fedloom.core.spec import Spec
from fedloom.methods.registry import build
from fedloom.runs.folder import CONFIG, RunFolder
from fedloom.settings.config import Config, load_file

FREE = (
    "method",
    "workers",
    "checkpoint_every",
)  # what the bits of a round do not hang on, or not on all of it


def leaves_rounds_unchanged(word: Spec) -> bool:
    """Whether a method leaves the rounds as they are: FedAvg by itself, or one that only follows them."""
    return word == Spec("fedavg") or replace(build([word]), name="", finale=(), needs=()) == Method(
        ""
    )


def same_rounds(one: Config, other: Config) -> bool:
    """Whether two runs differ in nothing before their last round is over; scores of own models on the way are a difference."""
    return (
        not one.evaluate.personal_every
        and _settings(one) == _settings(other)
        and _active(one) == _active(other)
    )


def _settings(config: Config) -> dict[str, object]:
    return {
        name: value for name, value in config.model_dump(mode="json").items() if name not in FREE
    }


def _active(config: Config) -> list[Spec]:
    return [word for word in config.words if not leaves_rounds_unchanged(word)]


def find_run_with_same_rounds(config: Config, others: Iterable[Path]) -> Path | None:
    """The first of these runs that is finished and has the same rounds."""
    there = (path for path in others if (path / CONFIG).exists())
    alike = (
        path
        for path in there
        if same_rounds(config, load_file(path / CONFIG)) and not _edited(config, path)
    )
    return next(filter(_finished, alike), None)


def check_same_rounds(config: Config, path: Path) -> None:
    """Refuse a run whose rounds are others, or not over."""
    if not _finished(path):
        raise UserError(f"the run in '{path}' is not finished; first: fedloom resume {path}")
    theirs = load_file(path / CONFIG)
    if (differ := _first_difference(config, theirs)) is not None:
        raise UserError(
            f"the rounds of '{path}' are not those of this run: {differ}; take its settings with --config {path / CONFIG}"
        )
    for place in _edited(config, path):
        raise UserError(
            f"the rounds of '{path}' were played by '{place}' as it was before it was edited; leave out --rounds-of"
        )
    if every := config.evaluate.personal_every:
        raise UserError(
            f"evaluate.personal_every={every} scores own models within the rounds, so they are its own; leave it out"
        )
    if not same_rounds(config, theirs):
        raise UserError(
            f"the rounds of '{path}' are those of {theirs.title}, and {config.title} has others; join a method that only follows "
            "the rounds, for example finetune"
        )


def _edited(config: Config, path: Path) -> list[str]:
    """The user's own files that have changed since that run."""
    return RunFolder.read_only(path).edited(config.code())


def _first_difference(one: Config, other: Config) -> str | None:
    memories, theirs = _settings(one), _settings(other)
    return next(
        (
            f"{name} is {theirs[name]} there and {memories[name]} here"
            for name in memories
            if memories[name] != theirs[name]
        ),
        None,
    )


def _finished(path: Path) -> bool:
    return RunFolder.read_only(path).result() is not None


def copy_rounds(folder: RunFolder, path: Path) -> None:
    """Put the rounds of a finished run into the folder of one that has none yet."""
    with RunFolder.read_only(path) as other:
        restored = other.restore()
        assert restored is not None  # it is finished
        for line in other.metrics():
            folder.append_metrics(line)
        folder.store.copy_from(other.store)
    folder.save(restored.state, **restored.manifest.extra)
