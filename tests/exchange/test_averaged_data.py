"""Averaged data: groups, noise, the server's pooling, and what a client draws."""

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedloom.core.client import job_for
from fedloom.core.errors import UserError
from fedloom.core.federation import Federation
from fedloom.core.job import Job, ModelPool
from fedloom.core.key import Key
from fedloom.core.method import Exchange, Method
from fedloom.core.params import Params
from fedloom.core.request import Broadcast, ClientTask
from fedloom.core.spec import Param, argument_problems, parameters
from fedloom.exchange import averaged_data
from fedloom.exchange.averaged_data import (
    AveragedData,
    answer_error,
    as_probabilities,
    averaged_data_exchange,
    clipped,
    draw,
    exchanging,
    pooled,
    smallest_group,
    split_into_groups,
)
from support.clients import TensorClient, tiny_clients
from support.models import CLASSES, nested
from support.simulate import SOLVER

CLIENTS = tiny_clients()
POOL = ModelPool(nested)


def job(client: int = 0, clients: Any = CLIENTS, shared: Any = None) -> Job:
    federation = Federation(Method("none"), nested, clients, SOLVER, Key.root(0), classes=CLASSES)
    return job_for(federation, POOL, Broadcast("exchange", 0, {}, shared or {}), ClientTask(client))


def answer(exchange: Exchange, client: int = 0, clients: Any = CLIENTS) -> Params:
    asked = job(client, clients)
    return exchange.client(asked, asked.key.fold(exchange.name))


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(0, 12),
    st.sampled_from(["random", "same-class"]),
    st.sampled_from(["keep", "drop"]),
)
def test_every_sample_is_in_one_group_of_its_size(
    labels: list[int], size: int, split: str, tail: str
) -> None:
    groups = split_into_groups(torch.tensor(labels), size, split, tail, Key.root(1))
    seen = Counter(i for g in groups for i in g.tolist())
    assert set(seen.values()) <= {1}
    piles = Counter(labels) if split == "same-class" else Counter({0: len(labels)})
    whole = sum(n // size for n in piles.values()) if size else len(piles)
    tails = sum(n % size > 0 for n in piles.values()) if size and tail == "keep" else 0
    assert len(groups) == whole + tails
    assert (tail == "drop" and size > 0) or len(seen) == len(labels)
    if split == "same-class":
        assert all(len({labels[i] for i in g.tolist()}) == 1 for g in groups)
    if groups:
        assert smallest_group([len(labels)], size, split, tail) <= min(len(g) for g in groups)
    if groups and split == "random":
        assert smallest_group([len(labels)], size, split, tail) == min(len(g) for g in groups)


def test_groups_depend_on_the_key() -> None:
    labels = torch.zeros(50, dtype=torch.int64)
    first, again, other = (
        split_into_groups(labels, 5, "random", "keep", Key.root(k)) for k in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert sorted(first[0].tolist()) != [0, 1, 2, 3, 4]


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


@dataclass(frozen=True)
class Plain(TensorClient):
    """Fails if it is read as in training."""

    def batch(
        self, positions: Tensor, generator: torch.Generator | None = None, train: bool = True
    ) -> tuple[Tensor, Tensor]:
        assert generator is None and not train and len(positions) <= averaged_data.CHUNK
        return self.x[positions], self.y[positions]


def test_samples_are_not_augmented_and_large_clients_are_read_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = answer(averaged_data_exchange(), 6)
    monkeypatch.setattr(averaged_data, "CHUNK", 4)
    pieces = answer(averaged_data_exchange(), 0, [Plain(CLIENTS[6].x, CLIENTS[6].y)])
    torch.testing.assert_close(pieces["x"], whole["x"])
    torch.testing.assert_close(pieces["y"], whole["y"])


def test_clipping_scales_long_samples_and_leaves_short_ones() -> None:
    x = torch.tensor([[[3.0, 4.0]], [[0.3, 0.4]]])
    torch.testing.assert_close(clipped(x, 1.0), torch.tensor([[[0.6, 0.8]], [[0.3, 0.4]]]))
    assert clipped(x, None) is x
    data = TensorClient(x, torch.tensor([0, 1]))
    torch.testing.assert_close(
        answer(averaged_data_exchange(clip=1.0), 0, [data])["x"], torch.tensor([[[0.45, 0.6]]])
    )


def test_noise_is_gaussian_and_depends_on_the_key() -> None:
    data = TensorClient(torch.zeros(3, 20000, dtype=torch.float64), torch.tensor([0, 1, 1]))
    x = answer(averaged_data_exchange(noise=0.3), 0, [data])["x"].flatten()
    assert abs(float(x.std()) - 0.3) < 0.006 and abs(float(x.mean())) < 0.009
    assert abs(float((x.abs() < 0.3).double().mean()) - 0.6827) < 0.015
    assert torch.equal(x, answer(averaged_data_exchange(noise=0.3), 0, [data])["x"].flatten())
    other = answer(averaged_data_exchange(noise=0.3), 1, [data, data])["x"].flatten()
    assert abs(float(torch.corrcoef(torch.stack([x, other]))[0, 1])) < 0.04


def test_noisy_labels_are_rows_of_probabilities() -> None:
    said = answer(averaged_data_exchange(size=2, label_noise=0.7), 6)
    assert bool((said["y"] >= 0).all())
    torch.testing.assert_close(said["y"].sum(1), torch.ones(11, dtype=torch.float64))
    assert not torch.equal(said["y"], answer(averaged_data_exchange(size=2), 6)["y"])
    assert torch.equal(said["x"], answer(averaged_data_exchange(size=2), 6)["x"])
    rows = as_probabilities(torch.tensor([[0.5, -0.2, 1.5], [-1.0, -1.0, -1.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3]]))


def entries(*owners: int) -> list[Params]:
    """Answers of one average each; x and y identify the owner."""
    return [
        {"x": torch.tensor([[float(o)]]), "y": torch.eye(8)[o : o + 1], "owner": torch.tensor([o])}
        for o in owners
    ]


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


def test_a_draw_is_uniform_and_depends_on_the_key() -> None:
    its = job(2, shared={"mashed": pooled(entries(0, 1, 2, 3), 1, Key.root(0))})
    drawn = Counter(float(draw(its, Key.root(n))[0]) for n in range(400))
    assert set(drawn) == {0.0, 1.0, 2.0, 3.0} and min(drawn.values()) > 65
    x, y = draw(its, Key.root(5))
    assert torch.equal(draw(its, Key.root(5))[0], x) and torch.equal(y, torch.eye(8)[int(x)])


def test_a_client_can_be_excluded_from_its_own_averages() -> None:
    its = job(2, shared={"mashed": pooled(entries(0, 1, 2, 3), 1, Key.root(0))})
    assert {float(draw(its, Key.root(n), exclude_self=True)[0]) for n in range(60)} == {
        0.0,
        1.0,
        3.0,
    }
    alone = job(2, shared={"mashed": pooled(entries(2), 1, Key.root(0))})
    assert float(draw(alone, Key.root(0), exclude_self=True)[0]) == 2.0


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


@exchanging
def blending(
    lam: Annotated[float, Param("share", low=0)] = 0.1, *, averaged: AveragedData
) -> Method:
    return Method(f"{lam} {averaged.exclude_self}", prologue=(averaged.exchange,))


def test_a_method_takes_the_parameters_of_the_exchange_and_its_own() -> None:
    known = parameters(blending)
    assert (
        set(known) == {"lam", "exclude_self", *parameters(averaged_data_exchange)}
        and known["size"] == parameters(averaged_data_exchange)["size"]
    )
    made = blending(lam=0.3, size=1, exclude_self=True)
    assert made.name == "0.3 True" and len(answer(made.prologue[0], 1)["x"]) == 9
    assert argument_problems(blending, {"least": 0, "mesh": 1})[0].startswith(
        "least=0 must be at least 1"
    )
    assert not argument_problems(blending, {"split": "same-class", "clip": None})


def test_a_secret_of_the_client_changes_the_noise_and_nothing_else() -> None:
    made = {}
    for secret, noise in itertools.product(("", "a", "b"), (0.0, 0.1)):
        exchange = averaged_data_exchange(size=2, noise=noise)
        made[secret, noise] = exchange.client(replace(job(), secret=secret), Key.root(0))["x"]
    assert torch.equal(made["", 0.0], made["a", 0.0])
    assert not torch.equal(made["", 0.1], made["a", 0.1])
    assert not torch.equal(made["a", 0.1], made["b", 0.1])
