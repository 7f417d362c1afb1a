"""What a folder says of a run must fit together before anyone reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.errors import RunError
from fedloom.experiment.execute import execute
from fedloom.experiment.stored_run import read_history, read_run
from fedloom.runs.durable_files import seal, unseal
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load

SETTINGS = {
    "model": "mlp(layers=1,width=2)",
    "data": {"name": "crowd-3", "clients": 0, "partition": "user"},
    "sample": "uniform(per_round=2)",
    "rounds": 3,
    "engine": "inprocess",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    execute(load(SETTINGS), tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", 2),
        ("accuracy", 0.99),
        ("test_loss", 0.01),
        ("rejected", 1),
        ("bytes_up", 0),
        ("bytes_down", 0),
        ("method", "fedprox"),
        ("seed", 7),
        ("model", "lenet5"),
        ("data", "cifar10"),
    ],
)
def test_a_result_that_contradicts_metrics_or_settings_is_rejected(
    run: Path, field: str, value: object
) -> None:
    """Its checksum is right: whoever wrote it has recomputed it."""
    assert read_run(run).result is not None
    path = run / "result.json"
    facts = unseal(path.read_bytes()) or {}
    facts["summary"][field] = value
    path.write_bytes(seal(facts))
    with pytest.raises(RunError, match=f"contradict each other in '{field}'"):
        read_run(run)


@pytest.mark.parametrize("summary", [None, 3, [], "x"])
def test_a_result_without_a_summary_is_rejected(run: Path, summary: object) -> None:
    path = run / "result.json"
    path.write_bytes(seal({**(unseal(path.read_bytes()) or {}), "summary": summary}))
    with pytest.raises(RunError, match=r"result\.json is damaged"):
        read_run(run)


def rewrite(run: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Other lines, in a folder whose checkpoints cannot tell."""
    path = run / "metrics.jsonl"
    lines = change([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for manifest in run.glob("checkpoint/MANIFEST-*"):
        manifest.unlink()


def test_a_line_of_another_type_is_named(run: Path) -> None:
    rewrite(run, lambda lines: [lines[0], {**lines[1], "steps": "12"}, lines[2]])
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2, is damaged: field 'steps' is 12"):
        read_run(run)


def test_a_missing_line_is_noticed(run: Path) -> None:
    rewrite(run, lambda lines: [lines[0], lines[2]])
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2, is the record of round 3"):
        read_run(run)


def test_fewer_lines_than_rounds_are_noticed(run: Path) -> None:
    with RunFolder.read_only(run) as folder:
        assert len(read_history(folder, 3)) == 3
        with pytest.raises(
            RunError, match="3 readable lines, and the checkpoint is that of round 4"
        ):
            read_history(folder, 4)
