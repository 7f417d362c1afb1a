"""A run through the study room: the same result with and without a folder, stopped and gone on with, and personal scores."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from fedloom.core.errors import UserError
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import Interrupted, replay_client, run
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


def test_a_folder_changes_nothing_and_evaluation_is_due_when_asked_for(tmp_path: Path) -> None:
    config = settings(method="scaffold")
    alone = run(prepare(config))
    with RunFolder.create(tmp_path / "run", config.text()) as folder:
        kept = run(prepare(config), folder)
        lines = folder.metrics()
    timeless = {k: v for k, v in kept.items() if k != "seconds"}
    assert timeless == {k: v for k, v in alone.items() if k != "seconds"}
    assert ["accuracy" in line for line in lines] == [False, False, True, True]
    assert kept["rounds_to_target"] == 3


@pytest.mark.parametrize("after", [1, 2, 3])
def test_stopped_and_gone_on_with_equals_uninterrupted(tmp_path: Path, after: int) -> None:
    config = settings(method="feddyn+fedprox", checkpoint_every=2)
    whole = run(prepare(config))
    asked = itertools.count(1)
    with (
        RunFolder.create(tmp_path / "run", config.text()) as folder,
        pytest.raises(Interrupted, match=f"after round {after} of 4"),
    ):
        run(prepare(config), folder, stop=lambda: next(asked) == after)
    with RunFolder.open(tmp_path / "run") as folder:
        rest: list[int] = []
        result = run(prepare(config), folder, watch=lambda line: rest.append(line["round"]))
    assert rest == list(range(after + 1, 5))
    assert result["weights_sha256"] == whole["weights_sha256"]
    assert result["bytes_up"] == whole["bytes_up"]


def test_play_one_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    config = settings(method="scaffold")
    with RunFolder.create(tmp_path / "run", config.text()) as folder, pytest.raises(Interrupted):
        run(prepare(config), folder, stop=lambda: True)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run" / "checkpoint").iterdir()}
    with RunFolder.open(tmp_path / "run") as folder:
        answer = replay_client(prepare(config), folder, client=7)
    assert (answer["client"], answer["round"], answer["complaint"]) == (7, 2, None)
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "run" / "checkpoint").iterdir()}


def test_a_personal_method_is_scored_client_by_client(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    tuned = run(prepare(settings(method=f"{tmp_path / 'own.py'}:tuned")))
    plain = run(prepare(settings()))
    assert "personal" not in plain
    assert tuned["weights_sha256"] == plain["weights_sha256"]  # the finale sends nothing
    assert (
        tuned["personal"]["weighted"]["mean"] > plain["accuracy"] + 0.2
    )  # two shards a client: its own classes are easy


def test_private_blocks_stay_at_home_and_are_scored_there(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    prepared = prepare(settings(method=f"{tmp_path / 'own.py'}:headless"))
    result = run(prepared)
    first = {n: t for n, t in prepared.model.state_dict().items() if n.startswith("head.")}
    assert result["personal"]["recall"]["mean"] > 0
    assert result["bytes_up"] < run(prepare(settings()))["bytes_up"]
    assert first  # the server's head is the first one: it never saw another


TIMES = ("seconds", "evaluation_seconds")


def timeless(line: dict[str, Any], *others: str) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in (*TIMES, *others)}


@pytest.mark.parametrize("method", ["ditto", "finetune"])
def test_own_models_are_scored_during_the_rounds_and_the_run_is_the_same(
    tmp_path: Path, method: str
) -> None:
    few = {"data": {"clients": 20, "partition": "shards"}, "method": method}
    often = settings(**few, evaluate={"every": 3, "batch": 500, "personal_every": 2})
    watched: dict[str, list[dict[str, Any]]] = {"plain": [], "often": []}
    plain = run(
        prepare(settings(**few, evaluate={"every": 3, "batch": 500})), watch=watched["plain"].append
    )
    asked = itertools.count(1)
    with RunFolder.create(tmp_path / "run", often.text()) as folder, pytest.raises(Interrupted):
        run(prepare(often), folder, stop=lambda: next(asked) == 2)
    with RunFolder.open(tmp_path / "run") as folder:
        resumed = run(prepare(often), folder)
        watched["often"] = folder.metrics()
    assert timeless(resumed) == timeless(plain)
    assert [timeless(line, "personal") for line in watched["often"]] == [
        timeless(line) for line in watched["plain"]
    ]
    assert ["personal" in line for line in watched["often"]] == [
        False,
        True,
        False,
        False,
    ]  # the last are the result's
    halfway = run(prepare(settings(**few, rounds=2, evaluate={"every": 3, "batch": 500})))[
        "personal"
    ]
    assert watched["often"][1]["personal"] == {
        name: halfway[name] for name in ("weighted", "recall")
    }
    assert watched["often"][1]["personal"] != {
        name: plain["personal"][name] for name in ("weighted", "recall")
    }


def test_scores_of_own_models_are_wanted_or_not() -> None:
    with pytest.raises(
        UserError,
        match=r"evaluate: personal_every=2 needs personal=true; set evaluate.personal=true",
    ):
        settings(evaluate={"personal": False, "personal_every": 2})
