"""The errors for a run that has no checkpoint from which it could be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedloom.core.errors import RunError, UserError

CONFIG_CHANGED = "config.toml is not the one this run began with (edited or damaged)"


def no_valid_checkpoint(run: Path, rejected: Mapping[int, str]) -> RunError | UserError:
    """The error for a run without a valid checkpoint. rejected: why, by round."""
    rounds_by_reason: dict[str, list[str]] = {}
    for number, reason in rejected.items():
        rounds_by_reason.setdefault(reason, []).append(str(number))
    reasons = "; ".join(
        f"round {', '.join(numbers)}: {reason}" for reason, numbers in rounds_by_reason.items()
    )
    restart = _restart(run)
    if CONFIG_CHANGED in rounds_by_reason:
        return UserError(
            f"{run} cannot be resumed: {reasons}; put the file back as it was, or {restart}"
        )
    return RunError(
        f"{run} has no valid checkpoint: {reasons}; restore the files from a copy, or {restart}"
    )


def checkpoints_gone(run: Path, rounds: int) -> RunError:
    """The error for a run that had checkpoints, and whose checkpoint folder holds none now."""
    return RunError(
        f"{run} has {rounds} rounds in metrics.jsonl, but its checkpoints are gone from "
        f"{run}/checkpoint; put them back from a copy, or {_restart(run)}"
    )


def _restart(run: Path) -> str:
    return (
        f"start again with `fedloom run --config {run}/config.toml --out NEW` (nothing was deleted)"
    )
