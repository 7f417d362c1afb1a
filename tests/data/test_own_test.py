"""Each client's own part of the test split: which rows it is, and scores on it on every engine."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedloom.core.errors import UserError
from fedloom.core.evaluate import count_correct
from fedloom.core.params import sha256
from fedloom.core.request import Broadcast, Task
from fedloom.core.server import Absent
from fedloom.data.dataset import Dataset, Split
from fedloom.data.own_test import own_test_rows
from fedloom.engines.forkserver import ForkServer
from fedloom.engines.inprocess import InProcess
from fedloom.experiment.execute import execute
from fedloom.experiment.prepare import prepare
from fedloom.experiment.train import train
from fedloom.settings.config import load

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "model": "mlp",
    "data": {"partition": "user", "clients": 3, "name": "wards"},
    "train": {"steps": 3, "batch": 4, "lr": 0.1},
    "sample": {"per_round": 2},
    "method": "ditto",
    "evaluate": {"on": "own", "batch": 5},
}


def wards() -> Dataset:
    """Three users; the last has no test sample, and a fourth has no training sample."""
    draws = torch.Generator().manual_seed(1)

    def split(users: list[int]) -> Split:
        y = torch.randint(0, 2, (len(users),), generator=draws)
        x = torch.randn(len(users), 3, generator=draws) + y[:, None]
        return Split(x, y, torch.tensor(users))

    train, test = split([0] * 20 + [1] * 12 + [2] * 9), split([1, 0, 3, 0, 1, 0, 0] * 2)
    return Dataset("wards", "table", train, test, ("no", "yes"), users=tuple("abcd"))


def test_rows_of_the_test_split_follow_the_users() -> None:
    users = wards().train.users
    assert users is not None
    rows = [np.flatnonzero(users.numpy() == user) for user in (1, 0, 2)]
    owned = own_test_rows(wards(), rows)
    assert [list(own) for own in owned] == [[0, 4, 7, 11], [1, 3, 5, 6, 8, 10, 12, 13], []]


@pytest.mark.parametrize(
    ("changes", "piece"),
    [({"data": {"partition": "iid"}}, "spread over several clients"), ({}, "have no users")],
)
def test_clients_that_are_not_users_own_no_test_samples(
    changes: dict[str, Any], piece: str
) -> None:
    data = wards()
    if not changes:
        data = Dataset("wards", "table", data.train, Split(data.test.x, data.test.y), data.classes)
    settings = {**SETTINGS, "data": {**SETTINGS["data"], **changes.get("data", {})}}
    with pytest.raises(UserError, match=piece) as error:
        prepare(load(settings), data)
    assert "evaluate.on='test'" in str(error.value)


def test_models_are_scored_on_their_own_samples() -> None:
    done = execute(load(SETTINGS), dataset=wards())
    scores = done.result.personal_models
    assert scores is not None
    assert scores.unscored == {2: "it has no test sample"}
    assert [sum(row) for row in scores.own_test_samples] == [8, 4, 0]
    with prepare(load(SETTINGS), wards()) as prepared:
        federation = prepared.simulation.federation
        assert federation.own_test is not None and federation.test_pieces == 3
        model = federation.build()
        model.load_state_dict(done.state.params)
        counts = [count_correct(model, federation.own_test[c], 2) for c in range(3)]
    assert done.result.accuracy == float(sum(c.hits.sum() for c in counts)) / 12
    shares = [c.accuracy for c in counts[:2]]
    assert done.result.global_model.label_weighted_accuracy.mean == pytest.approx(sum(shares) / 2)


@pytest.mark.posix
def test_the_pool_scores_the_same_samples(fork_server: ForkServer) -> None:
    alone = execute(load({**SETTINGS, "engine": "inprocess"}), dataset=wards())
    config = load({**SETTINGS, "engine": "pool", "workers": 2})
    pooled = execute(config, dataset=wards(), fork_server=fork_server)
    assert sha256(alone.state.params) == sha256(pooled.state.params)
    assert alone.result.accuracy == pooled.result.accuracy
    assert alone.result.personal_models == pooled.result.personal_models


class AwayEngine(InProcess):
    """One client cannot be reached when the model is evaluated."""

    def run_client(self, sent: Broadcast, task: Task) -> Any:
        if sent.work == "evaluate" and task.number == 1:
            return Absent(1, "site 'b' is not connected")
        return super().run_client(sent, task)


def test_a_client_that_is_away_is_missing_in_the_evaluation_and_named() -> None:
    with prepare(load(SETTINGS), wards()) as prepared:
        simulation = prepared.simulation
        away = replace(simulation, engine=AwayEngine(simulation.federation))
        done = train(replace(prepared, simulation=away))
    scores = done.result.global_model
    none = "it has no test sample"
    assert scores is not None and scores.unscored == {1: "site 'b' is not connected", 2: none}
    whole = execute(load(SETTINGS), dataset=wards())
    assert sha256(whole.state.params) == sha256(done.state.params)
    assert whole.result.global_model.unscored == {2: none}
