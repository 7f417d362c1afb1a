"""An exchange of every round in runs on disk: all engines, resume, replay, and its notice."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from fedloom.experiment.prepare import prepare
from fedloom.experiment.reopen import reopened
from fedloom.experiment.train import Interrupted, replay_client, train
from fedloom.inspect.analysis import analyze
from fedloom.inspect.analysis_inputs import AnalysisOptions
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import Config, load

METHOD = "fedmix(at=layer1, every_round=true, noise=0.1)+fedprox(mu=0.1)"


def settings(engine: str = "inprocess") -> Config:
    size = {
        "data": {"clients": 12},
        "sample": {"per_round": 3},
        "evaluate": {"every": 3, "batch": 1000},
    }
    return load(
        {
            "rounds": 3,
            "method": METHOD,
            "model": "mlp(layers=2, width=8)",
            "engine": engine,
            "workers": 2,
            **size,
        }
    )


def finished(config: Config, folder: RunFolder | None = None, **given: Any) -> tuple[str, int, int]:
    with prepare(config) as prepared:
        result = train(prepared, folder, **given).result
    return result.weights_sha256, result.bytes_up, result.bytes_down


@pytest.fixture(scope="module")
def whole() -> tuple[str, int, int]:
    return finished(settings())


@pytest.mark.posix
def test_workers_give_the_same_bits(whole: tuple[str, int, int]) -> None:
    assert finished(settings("pool")) == whole


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path, whole: tuple[str, int, int]) -> None:
    rounds, config = itertools.count(1), settings()
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        finished(config, folder, stop=lambda: next(rounds) == 2)
    with RunFolder.open(tmp_path / "run") as folder, prepare(config) as prepared:
        replied = replay_client(prepared, folder, 1)
        assert replied["problem"] is None and replied["round"] == 3
        assert finished(config, folder) == whole
    with reopened(tmp_path / "run", lambda warning: None) as looked:
        found = analyze(looked, AnalysisOptions(only=("drift",), samples=50, clients=2)).figures
    assert [row["accuracy"] > 0 for row in found["drift"]["clients"]] == [True, True]


def test_the_notice_says_how_often_answers_are_sent() -> None:
    with prepare(settings()) as prepared:
        (said,) = prepared.notices
    assert said.startswith(
        "exchange 'mashed': before every round, averages of the outputs of block 'layer1' are sent"
    )
    assert "3 times (the privacy loss adds up)" in said
