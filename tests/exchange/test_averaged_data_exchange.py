"""The exchange of averaged data: what clients send, its noise, and the server's pooling."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.params import Params
from fedloom.exchange.averaged_data_exchange import (
    answer_error,
    as_probabilities,
    averaged_data_exchange,
    pooled,
)
from support.averages import CLIENTS, answer, entries, job
from support.clients import TensorClient
from support.models import CLASSES


def counted(entry: Tensor, size: int) -> list[int]:
    """The number of samples of each class behind a mean label of `size` samples."""
    return [round(share) for share in (entry * size).tolist()]


def test_by_default_a_client_sends_the_mean_of_all_its_data() -> None:
    said = answer(averaged_data_exchange(), 4)
    data = CLIENTS[4]
    torch.testing.assert_close(said["x"], data.x.mean(0, keepdim=True))
    assert counted(said["y"][0], 16) == torch.bincount(data.y, minlength=CLASSES).tolist()
    assert said["owner"].tolist() == [4] and said["x"].dtype == said["y"].dtype == torch.float64


def test_groups_of_one_are_the_samples_themselves() -> None:
    said = answer(averaged_data_exchange(size=1), 1)
    rows = {tuple(row.tolist()) for row in said["x"]}
    assert rows == {tuple(row.tolist()) for row in CLIENTS[1].x} and len(said["x"]) == 9


def test_averages_of_one_class_have_its_label_and_its_mean() -> None:
    said, data = answer(averaged_data_exchange(split="same-class"), 6), CLIENTS[6]
    for x, y in zip(said["x"], said["y"], strict=True):
        assert sorted(y.tolist()) == [0.0] * (CLASSES - 1) + [1.0]
        torch.testing.assert_close(x, data.x[data.y == int(y.argmax())].mean(0))
    assert len(said["x"]) == len(set(data.y.tolist()))


def test_small_clients_send_nothing() -> None:
    exchange = averaged_data_exchange(size=4, least=9)
    empty, full = answer(exchange, 0), answer(exchange, 1)
    assert [t.shape for t in empty.values()] == [(0, *CLIENTS[0].x.shape[1:]), (0, CLASSES), (0,)]
    assert len(full["x"]) == 3
    assert pooled([empty, full], 1, Key.root(0))["owner"].tolist() == [1, 1, 1]
    with pytest.raises(UserError, match="no client has sent an average of its data"):
        pooled([empty], 1, Key.root(0))


def test_noise_is_gaussian_and_depends_on_the_key() -> None:
    data = TensorClient(torch.zeros(3, 20000, dtype=torch.float64), torch.tensor([0, 1, 1]))
    x = answer(averaged_data_exchange(noise=0.3), 0, [data])["x"].flatten()
    assert abs(float(x.std()) - 0.3) < 0.006 and abs(float(x.mean())) < 0.009
    assert abs(float((x.abs() < 0.3).double().mean()) - 0.6827) < 0.015
    assert torch.equal(x, answer(averaged_data_exchange(noise=0.3), 0, [data])["x"].flatten())
    other = answer(averaged_data_exchange(noise=0.3), 1, [data, data])["x"].flatten()
    assert abs(float(torch.corrcoef(torch.stack([x, other]))[0, 1])) < 0.04


def test_a_secret_of_the_client_changes_the_noise_and_nothing_else() -> None:
    made = {}
    for secret, noise in itertools.product(("", "a", "b"), (0.0, 0.1)):
        exchange = averaged_data_exchange(size=2, noise=noise)
        made[secret, noise] = exchange.client(replace(job(), secret=secret), Key.root(0))["x"]
    assert torch.equal(made["", 0.0], made["a", 0.0])
    assert not torch.equal(made["", 0.1], made["a", 0.1])
    assert not torch.equal(made["a", 0.1], made["b", 0.1])


def test_noisy_labels_are_rows_of_probabilities() -> None:
    said = answer(averaged_data_exchange(size=2, label_noise=0.7), 6)
    assert bool((said["y"] >= 0).all())
    torch.testing.assert_close(said["y"].sum(1), torch.ones(11, dtype=torch.float64))
    assert not torch.equal(said["y"], answer(averaged_data_exchange(size=2), 6)["y"])
    assert torch.equal(said["x"], answer(averaged_data_exchange(size=2), 6)["x"])
    rows = as_probabilities(torch.tensor([[0.5, -0.2, 1.5], [-1.0, -1.0, -1.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3]]))


def test_the_server_merges_averages_and_keeps_the_tail() -> None:
    pool = pooled(entries(0, 1, 2, 3, 4), 2, Key.root(3))
    assert pool["x"].shape == (3, 1) and pool["owner"].tolist().count(-1) == 2
    groups = [row.nonzero().flatten().tolist() for row in pool["y"]]
    assert sorted(i for g in groups for i in g) == [0, 1, 2, 3, 4] and [len(g) for g in groups] == [
        2,
        2,
        1,
    ]
    assert pool["x"].flatten().tolist() == [sum(g) / len(g) for g in groups]
    assert pool["owner"][2] == groups[2][0]
    orders = {
        tuple(pooled(entries(0, 1, 2, 3, 4), 2, Key.root(k))["x"].flatten().tolist())
        for k in range(8)
    }
    assert len(orders) > 1
    assert pooled(entries(7, 7), 2, Key.root(3))["owner"].tolist() == [7]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"owner": torch.tensor([3])}, "another client"),
        ({"y": torch.tensor([[0.5, 0.4]])}, "probabilities"),
        ({"y": torch.tensor([[1.5, -0.5]])}, "probabilities"),
        ({"x": torch.zeros(2, 3)}, "as many samples"),
        ({"z": torch.zeros(1)}, "as many samples"),
    ],
)
def test_invalid_answers_are_detected(change: Params, why: str) -> None:
    good = {"x": torch.zeros(1, 3), "y": torch.tensor([[0.25, 0.75]]), "owner": torch.tensor([1])}
    assert answer_error(1, good) is None
    assert why in str(answer_error(1, {**good, **change}))
