"""Runs that a test stops and resumes, for every tracker."""

from pathlib import Path
from typing import Any

from cli import talk
from fedloom.experiment.callbacks import Callback
from fedloom.experiment.execute import execute
from fedloom.experiment.stored_run import run_config
from fedloom.metrics.records import RoundRecord
from fedloom.settings.config import Config, load

METRICS = {
    "accuracy",
    "test_loss",
    "train_loss",
    "accuracy_worst_tenth",
    "bytes_up",
    "bytes_down",
    "rejected",
    "skipped",
    "evaluation_seconds",
    "seconds",
}
PERSONAL = {"personal_accuracy", "personal_accuracy_worst_tenth"}


class PowerCut(Callback):
    """Ends a run after a round, as nothing that a run expects would."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, record: RoundRecord) -> None:
        if record.round == self.after:
            raise KeyboardInterrupt


def settings(**changes: Any) -> Config:
    small = {
        "rounds": 4,
        "model": "mlp(layers=1,width=4)",
        "data": {"name": "tiny", "clients": 8},
        "sample": {"per_round": 3},
        "train": {"batch": 10},
        "engine": "inprocess",
    }
    return load({**small, **changes})


def cut_off(path: Path, after: int, *callbacks: Callback, **changes: Any) -> None:
    """A run that ends after this round, whose checkpoint may be of an earlier one."""
    try:
        execute(settings(**changes), path, callbacks=[*callbacks, PowerCut(after)])
    except KeyboardInterrupt:
        return
    raise AssertionError("the run was not cut off")


def resume(path: Path, *callbacks: Callback, warn: Any = print) -> None:
    execute(run_config(path), path, callbacks=callbacks, warn=warn)


def accuracies(folder: Path) -> dict[int, float]:
    """What the run itself says, by round."""
    return {line["round"]: line["accuracy"] for line in talk.lines(folder)}
