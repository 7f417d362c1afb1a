"""Run folders with made-up records, and plans of suites that consist of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedloom.claims.plan_suite import SuiteCell, SuitePlan
from fedloom.claims.suites import RunGroup, Suite, Target
from fedloom.experiment.schedule import PlannedRun
from fedloom.metrics.client_scores import EMPTY_SCORES, ClientScores, Spread
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.reports.paper_table import TableCell
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import Config, load
from fedloom.settings.paper_table import Column, Row

GROUP = RunGroup("fedmix/table1-cifar10", (), (), ())


def config(seed: int, rounds: int) -> Config:
    return load({"seed": seed, "rounds": rounds, "device": "cpu", "method": "fedavg"})


def write_run(
    path: Path, seed: int, accuracies: Sequence[float], losses: Sequence[float], recall: float = 0.0
) -> None:
    """A finished run that was evaluated in every round."""
    settings = config(seed, len(accuracies))
    scores = ClientScores(EMPTY_SCORES.label_weighted_accuracy, Spread(recall, 0.0, recall))
    with RunFolder.create(path, settings.text(), "cpu") as folder:
        for number, (accuracy, loss) in enumerate(zip(accuracies, losses, strict=True), 1):
            record = RoundRecord(
                round=number, participants=(0,), rejected={}, train_loss=loss, steps=1,
                bytes_up=1, bytes_down=1, seconds=2.0, accuracy=accuracy, test_loss=1.0,
                evaluation_seconds=1.0, global_model=EMPTY_SCORES,
            )  # fmt: skip
            folder.append_metrics(record.to_json())
        result = RunResult(
            method=settings.title, rounds=len(accuracies), accuracy=accuracies[-1], test_loss=1.0,
            seconds=2.0 * len(accuracies), weights_sha256="0" * 64, seed=seed,
            model=settings.model.name, data=settings.data.name, clients=4, rejected=0,
            bytes_up=len(accuracies), bytes_down=len(accuracies), personalised=False,
            global_model=scores,
        )  # fmt: skip
        folder.finish(result.to_json())


def plan(
    folder: Path,
    rows: Mapping[str, Sequence[Sequence[float]]],
    *gate: Mapping[str, Any],
    losses: Sequence[float] = (),
    recall: float = 0.0,
    measure: str = "accuracy(last=1)",
    targets: Sequence[Target] = (),
    rounds: int | None = None,
) -> SuitePlan:
    """A plan with one column whose runs, one per seed, have these accuracies by round.

    rounds: how many the runs should have; runs without accuracies are planned and do not exist.
    """
    cells = []
    for name, seeds in rows.items():
        runs = []
        for seed, accuracies in enumerate(seeds):
            path = folder / name / f"seed-{seed}"
            if accuracies:
                each_loss = list(losses) or [1.0] * len(accuracies)
                write_run(path, seed, accuracies, each_loss, recall)
            length = len(accuracies) or rounds or 1
            runs.append(PlannedRun(name, seed, path, config(seed, length)))
        cell = TableCell(Row(name, {}), Column("end", measure=measure), tuple(runs))
        cells.append(SuiteCell(GROUP.preset, cell, GROUP))
    suite = Suite("made-up", "t", "made up", (), gate=gate, targets=tuple(targets), seeds=(0, 1, 2))
    return SuitePlan(suite, tuple(cells))
