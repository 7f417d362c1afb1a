"""A run with and without a folder, stopped and resumed, and with scores of personal models."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.core.params import Params
from fedloom.core.user_code import allow
from fedloom.experiment.callbacks import Callback, RunStart
from fedloom.experiment.prepare import prepare
from fedloom.experiment.stored_run import read_history
from fedloom.experiment.train import Interrupted, replay_client, train
from fedloom.metrics.records import RoundRecord, RunResult
from fedloom.runs.folder import RunFolder
from fedloom.settings.config import load

SMALL = {
    "rounds": 4,
    "model": "mlp(width=8)",
    "data": {"clients": 50, "partition": "shards"},
    "sample": {"per_round": 3},
    "evaluate": {"every": 3, "batch": 500, "target": 0.05},
}

OWN = """
from fedloom.core.method import Method, Phase
from fedloom.core.select import blocks

def tuned() -> Method:
    return Method("tuned", finale=(Phase(),))

def headless() -> Method:
    return Method("headless", private=blocks("head"))
"""


def settings(**changes: Any) -> Any:
    return load({**SMALL, **changes})


class Recorder(Callback):
    """Keeps everything that it is called with, in order."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def on_start(self, start: RunStart) -> None:
        self.calls.append(start)

    def on_round(self, record: RoundRecord) -> None:
        self.calls.append(record)

    def on_weights(self, weights: Params) -> None:
        self.calls.append(weights)

    def on_end(self, result: RunResult) -> None:
        self.calls.append(result)

    def on_stop(self, error: BaseException) -> None:
        self.calls.append(type(error).__name__)

    @property
    def records(self) -> list[RoundRecord]:
        return [call for call in self.calls if isinstance(call, RoundRecord)]


def timeless(result: RunResult) -> RunResult:
    return replace(result, seconds=0.0)


def untimed(record: RoundRecord, personal: bool = True) -> RoundRecord:
    """A record without times; without scores of personal models too, if they are not wanted."""
    plain = replace(record, seconds=0.0, evaluation_seconds=None)
    return plain if personal else replace(plain, personal_models=None)


def test_a_folder_changes_nothing_and_rounds_are_evaluated_when_due(tmp_path: Path) -> None:
    config = settings(method="scaffold")
    alone = train(prepare(config)).result
    with RunFolder.create(tmp_path / "run", config.text()) as folder:
        kept = train(prepare(config), folder).result
        records = read_history(folder)
    assert timeless(kept) == timeless(alone)
    evaluated = [record.accuracy is not None for record in records]
    assert evaluated == [False, False, True, True]
    assert kept.rounds_to_target == 3


@pytest.mark.parametrize("after", [1, 2, 3])
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, after: int) -> None:
    config = settings(method="feddyn+fedprox", checkpoint_every=2)
    whole = train(prepare(config)).result
    asked = itertools.count(1)
    with (
        RunFolder.create(tmp_path / "run", config.text()) as folder,
        pytest.raises(Interrupted, match=f"after round {after} of 4"),
    ):
        train(prepare(config), folder, stop=lambda: next(asked) == after)
    rest = Recorder()
    with RunFolder.open(tmp_path / "run") as folder:
        result = train(prepare(config), folder, [rest]).result
    assert [record.round for record in rest.records] == list(range(after + 1, 5))
    assert result.weights_sha256 == whole.weights_sha256
    assert result.bytes_up == whole.bytes_up


def test_callbacks_are_called_in_order_with_what_is_known(tmp_path: Path) -> None:
    """An interrupted run stops; a resumed one starts where the first process stopped."""
    config, first, second = settings(), Recorder(), Recorder()
    asked = itertools.count(1)
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        train(prepare(config), folder, [first], stop=lambda: next(asked) == 2)
    with RunFolder.open(tmp_path / "run") as folder:
        trained = train(prepare(config), folder, [second])
    start = RunStart("fedavg", config, clients=50, rounds=4, folder=tmp_path / "run")
    earlier = tuple(trained.history[:2])
    assert first.calls == [start, *earlier, "Interrupted"]
    assert second.calls[0] == replace(start, completed=2, earlier=earlier)
    assert second.calls[1:] == [*trained.history[2:], trained.state.params, trained.result]


def test_a_replayed_client_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    config = settings(method="scaffold")
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        train(prepare(config), folder, stop=lambda: True)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run" / "checkpoint").iterdir()}
    with RunFolder.open(tmp_path / "run") as folder:
        answer = replay_client(prepare(config), folder, client=7)
    assert (answer["client"], answer["round"], answer["problem"]) == (7, 2, None)
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "run" / "checkpoint").iterdir()}


def test_a_personalised_method_is_scored_client_by_client(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path / 'own.py'}:tuned"
    allow([own])
    tuned = train(prepare(settings(method=own))).result
    plain = train(prepare(settings())).result
    assert plain.personal_models is None and not plain.personalised
    assert tuned.personal_models is not None and tuned.personalised
    assert tuned.weights_sha256 == plain.weights_sha256  # the finale sends nothing
    # two shards per client, so its own classes are easy
    assert tuned.personal_models.label_weighted_accuracy.mean > plain.accuracy + 0.2


def test_private_blocks_are_not_uploaded_and_are_scored_at_their_client(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path / 'own.py'}:headless"
    allow([own])
    prepared = prepare(settings(method=own))
    trained = train(prepared)
    scores = trained.result.personal_models
    assert scores is not None and scores.mean_class_recall.mean > 0
    assert trained.result.bytes_up < train(prepare(settings())).result.bytes_up
    initial = {n: t for n, t in prepared.model.state_dict().items() if n.startswith("head.")}
    assert initial  # the server keeps its initial head, since no client sends another
    assert all(trained.state.params[n].equal(t) for n, t in initial.items())


@pytest.mark.parametrize("method", ["ditto", "finetune"])
def test_scoring_personal_models_during_the_rounds_does_not_change_the_run(
    tmp_path: Path, method: str
) -> None:
    few = {"data": {"clients": 20, "partition": "shards"}, "method": method}
    seldom = settings(**few, evaluate={"every": 3, "batch": 500})
    often = settings(**few, evaluate={"every": 3, "batch": 500, "personal_every": 2})
    plain = train(prepare(seldom))
    asked = itertools.count(1)
    with RunFolder.create(tmp_path / "run", often.text()) as folder, pytest.raises(Interrupted):
        train(prepare(often), folder, stop=lambda: next(asked) == 2)
    with RunFolder.open(tmp_path / "run") as folder:
        resumed = train(prepare(often), folder)
        records = read_history(folder)
    assert timeless(resumed.result) == timeless(plain.result)
    assert [untimed(r, personal=False) for r in records] == [untimed(r) for r in plain.history]
    scored = [record.personal_models is not None for record in records]
    assert scored == [False, True, False, False]  # the scores of the last round are in the result
    two_rounds = settings(**few, rounds=2, evaluate={"every": 3, "batch": 500})
    halfway = train(prepare(two_rounds)).result.personal_models
    assert halfway is not None and plain.result.personal_models is not None
    assert records[1].personal_models == halfway.spreads()
    assert records[1].personal_models != plain.result.personal_models.spreads()


def test_scores_during_the_rounds_need_scores_at_the_end() -> None:
    with pytest.raises(
        UserError,
        match=r"evaluate: personal_every=2 needs personal=true; set evaluate.personal=true",
    ):
        settings(evaluate={"personal": False, "personal_every": 2})
