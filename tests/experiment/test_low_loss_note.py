"""The user is told once that the training loss has fallen below the floor of the method."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedloom as fl
from fedloom.core.step import Step
from fedloom.core.warn import FedloomWarning
from fedloom.experiment.callbacks import RunStart
from fedloom.experiment.low_loss_note import LowLossNote
from fedloom.metrics.records import RoundRecord
from fedloom.settings.config import load


def record(round: int, loss: float | None) -> RoundRecord:
    return RoundRecord(
        round=round,
        participants=(0,),
        rejected={},
        skipped=None if loss is not None else "no reply",
        train_loss=loss,
        steps=1,
        bytes_up=0,
        bytes_down=0,
        seconds=0.0,
    )


def notes(
    losses: Sequence[float | None], floor: float | None, earlier: Sequence[float | None] = ()
) -> list[str]:
    shown: list[str] = []
    note, config = LowLossNote(floor, shown.append), load({})
    before = [record(number, loss) for number, loss in enumerate(earlier, 1)]
    note.on_start(RunStart("own", config, 1, 9, len(before), earlier=before))
    for number, loss in enumerate(losses, len(before) + 1):
        note.on_round(record(number, loss))
    return shown


def test_it_is_shown_once_with_the_first_such_round() -> None:
    (note,) = notes([0.4, None, -0.25, -3.0, 0.1, -9.0], 0.0)
    assert note.startswith("note: the training loss of round 3 is -0.25, below 0.")
    assert "lower train.lr" in note


def test_it_is_not_shown_for_losses_above_the_floor_or_methods_without_one() -> None:
    assert notes([0.4, 0.0], 0.0) == [] and notes([-5.0, -6.0], None) == []
    assert len(notes([0.4], 0.5)) == 1


def test_a_resumed_run_does_not_show_it_again() -> None:
    assert notes([-3.0], 0.0, earlier=[0.4, -0.25]) == []
    assert len(notes([-3.0], 0.0, earlier=[0.4])) == 1


def falling(step: Step) -> Tensor:
    """A term that takes every loss below 0 from the second round on."""
    return -100.0 * step.job.round * step.logits.new_ones(())


@pytest.mark.parametrize("floor", [0.0, None])
def test_a_run_says_so(floor: float | None, tmp_path: Path) -> None:
    samples = torch.linspace(0, 1, 40)[:, None].repeat(1, 4)
    experiment = fl.Experiment(
        method=fl.Method("falling", fl.Phase(terms=falling), loss_floor=floor),
        data=(samples, torch.arange(40) % 2),
        model="mlp",
        partition="iid",
        clients=4,
        per_round=2,
        rounds=3,
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", FedloomWarning)
        experiment.run(tmp_path / "run")
    below = [str(w.message) for w in warned if "the training loss of round" in str(w.message)]
    assert [text.partition(" is ")[0] for text in below] == (
        ["the training loss of round 2"] if floor == 0 else []
    )
