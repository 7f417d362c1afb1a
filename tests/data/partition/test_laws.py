"""Properties of every partition, for any labels, clients and key."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data.partition import PARTITIONS, partition
from fedloom.data.partition.balanced import first_arrivals
from fedloom.data.partition.draws import dirichlet_vector, stream, top_up_small_clients
from fedloom.data.partition.published import SEEDS

COVERING = {
    "iid": {},
    "dirichlet": {"min_size": 1},
    "shards": {},
    "quantity": {},
    "classes": {"classes": 2},
}


def skewed_labels(seed: int, samples: int, classes: int) -> np.ndarray:
    """Shuffled labels with gaps; every class occurs at least 20 times, some far more often."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate(
        [np.repeat(np.arange(classes), 20), rng.integers(0, classes, samples) // 2]
    )
    return 3 * rng.permutation(labels)


label_arrays = st.tuples(st.integers(0, 10**6), st.integers(0, 300), st.integers(2, 8)).map(
    lambda t: skewed_labels(*t)
)


@pytest.mark.parametrize("name", COVERING)
@settings(max_examples=25, deadline=None)
@given(labels=label_arrays, clients=st.integers(4, 20), seed=st.integers(0, 10**6))
def test_disjoint_cover(name, labels, clients, seed):
    parts = partition(Spec(name, COVERING[name]), labels, clients, Key.root(seed))
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@settings(max_examples=25, deadline=None)
@given(labels=label_arrays, clients=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_iid_sizes_differ_by_at_most_one(labels, clients, seed):
    sizes = [len(rows) for rows in partition(Spec("iid"), labels, clients, Key.root(seed))]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=25, deadline=None)
@given(
    labels=label_arrays,
    clients=st.integers(1, 40),
    alpha=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 1e6]),
    seed=st.integers(0, 10**6),
    published=st.booleans(),
)
def test_balanced_is_exactly_balanced_and_disjoint(labels, clients, alpha, seed, published):
    args = {"alpha": alpha, **({"legacy_seed": seed} if published else {})}
    parts = partition(Spec("dirichlet-balanced", args), labels, clients, Key.root(seed))
    assert {len(rows) for rows in parts} == {len(labels) // clients}
    assert len(np.unique(np.concatenate(parts))) == clients * (len(labels) // clients)


@settings(max_examples=25, deadline=None)
@given(
    labels=label_arrays,
    clients=st.integers(2, 10),
    alpha=st.sampled_from([1e-3, 0.1, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_rounded_tops_up_small_clients_and_moves_nothing_else(labels, clients, alpha, seed):
    """The samples are the same; if no client is too small, nothing changes."""
    drawn, filled = (
        partition(
            Spec("dirichlet-rounded", {"alpha": alpha, "min_size": min_size}),
            labels,
            clients,
            Key.root(seed),
        )
        for min_size in (1, 3)
    )
    assert min(map(len, filled)) >= 3
    np.testing.assert_array_equal(np.sort(np.concatenate(drawn)), np.sort(np.concatenate(filled)))
    if min(map(len, drawn)) >= 3:
        for before, after in zip(drawn, filled, strict=True):
            np.testing.assert_array_equal(before, after)


@settings(max_examples=25, deadline=None)
@given(
    labels=label_arrays,
    clients=st.integers(8, 20),
    share=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_classes_per_client(labels, clients, share, seed):
    classes = len(np.unique(labels))
    per_client = 1 + round(share * (classes - 1))
    parts = partition(Spec("classes", {"classes": per_client}), labels, clients, Key.root(seed))
    assert {len(np.unique(labels[rows])) for rows in parts} == {per_client}
    holders = [sum(label in labels[rows] for rows in parts) for label in np.unique(labels)]
    assert max(holders) - min(holders) <= 1


@pytest.mark.parametrize(
    ("classes", "clients", "per_client", "holders", "shares"),
    [
        (10, 60, 2, 12, {416, 417}),
        (100, 100, 20, 20, {25}),
        (10, 60, 3, 18, {277, 278}),
        (10, 60, 10, 60, {83, 84}),
    ],
)
def test_fedmix_splits_all_50000_samples_evenly(classes, clients, per_client, holders, shares):
    """CIFAR-10 and CIFAR-100 as in the paper, and two more columns of its Table 6.

    Each class has clients x per_client / classes holders.
    """
    labels = np.arange(50_000) % classes
    parts = partition(Spec("classes", {"classes": per_client}), labels, clients, Key.root(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(50_000))
    counts = np.stack([np.bincount(labels[rows], minlength=classes) for rows in parts])
    assert {len(rows[rows > 0]) for rows in counts} == {per_client}
    assert ((counts > 0).sum(axis=0) == holders).all()
    assert set(counts[counts > 0].tolist()) == shares


@settings(max_examples=25, deadline=None)
@given(labels=label_arrays, alpha=st.floats(0.5, 100), seed=st.integers(0, 10**6))
def test_rounded_drops_at_most_the_rounding_errors(labels, alpha, seed):
    clients = 4
    try:
        parts = partition(
            Spec("dirichlet-rounded", {"alpha": alpha}), labels, clients, Key.root(seed)
        )
    except UserError as refused:
        assert "get no sample" in str(refused)
        return
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows)
    lost = np.bincount(labels) - np.bincount(labels[rows], minlength=labels.max() + 1)
    assert lost.max() <= clients / 2


def test_shards_hold_few_classes():
    labels = np.arange(6000) % 10
    parts = partition(Spec("shards"), labels, 100, Key.root(0))
    assert {len(rows) for rows in parts} == {60}
    assert max(len(np.unique(labels[rows])) for rows in parts) == 2


@pytest.mark.parametrize("name", sorted(PARTITIONS.keys() - SEEDS.keys()))
def test_parts_depend_on_the_key_alone(name):
    labels, users = np.arange(3000) % 10, np.arange(3000) // 100
    clients = 0 if name == "user" else 20
    draw = [
        np.concatenate(partition(Spec(name), labels, clients, Key.root(seed), users))
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert np.array_equal(draw[0], draw[2]) == (name == "user")


def test_the_labels_passed_in_are_not_changed():
    labels = np.arange(3000) % 10
    for name in PARTITIONS.keys() - SEEDS.keys() - {"user"}:
        partition(Spec(name), labels, 20, Key.root(0), longtail=2.0)
    np.testing.assert_array_equal(labels, np.arange(3000) % 10)


def test_users_are_clients_in_order():
    users = np.array([7, 3, 7, 9, 3, 7])
    parts = partition(Spec("user"), np.zeros(6, dtype=np.int64), None, Key.root(0), users)
    assert [list(rows) for rows in parts] == [[1, 4], [0, 2, 5], [3]]
    frequent = partition(
        Spec("user", {"min_size": 2}), np.zeros(6, dtype=np.int64), 2, Key.root(0), users
    )
    assert [list(rows) for rows in frequent] == [[1, 4], [0, 2, 5]]


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=9),
    min_size=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    data=st.data(),
)
def test_fewer_clients_than_users_are_drawn_among_the_large_ones(sizes, min_size, seed, data):
    users = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    large = [u for u, size in enumerate(sizes) if size >= min_size]
    clients = data.draw(st.integers(0, len(large)))
    spec, labels = Spec("user", {"min_size": min_size}), np.zeros(len(users), dtype=np.int64)
    if not large:
        with pytest.raises(UserError, match="smaller min_size"):
            partition(spec, labels, clients, Key.root(seed), users)
        return
    users_of_clients = [
        set(users[rows]) for rows in partition(spec, labels, clients, Key.root(seed), users)
    ]
    numbers = [owner for (owner,) in users_of_clients]  # one user per client
    assert numbers == sorted(set(numbers)) and set(numbers) <= set(large)
    assert len(numbers) == (clients or len(large))


def test_another_seed_draws_other_users():
    labels, users = np.zeros(3000, dtype=np.int64), np.arange(3000) // 100
    draws = [
        np.concatenate(partition(Spec("user"), labels, 10, Key.root(seed), users))
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])


def test_users_combined_with_a_long_tail():
    labels, users = np.repeat([0, 1], 100), np.arange(200) % 4
    parts = partition(Spec("user"), labels, 4, Key.root(0), users, longtail=10)
    assert sum(map(len, parts)) == 110
    assert [set(users[rows]) for rows in parts] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize("seed", range(8))
def test_a_client_at_the_average_size_gets_no_more(seed):
    # at this alpha a class goes to one client, and ten samples are the average
    labels = np.repeat([0, 1, 2], [10, 4, 6])
    parts = partition(Spec("dirichlet", {"alpha": 1e-6, "min_size": 1}), labels, 2, Key.root(seed))
    assert sorted(tuple(sorted(labels[rows])) for rows in parts) == [(0,) * 10, (1,) * 4 + (2,) * 6]


@pytest.mark.parametrize("args", [{}, {"legacy_seed": 0}, {"legacy_seed": 1}])
def test_balanced_clients_take_what_is_left_once_their_class_is_gone(args):
    # twenty clients of four samples want one class each, hardly ever ten of them the same
    labels = np.arange(80) % 2
    parts = partition(Spec("dirichlet-balanced", {"alpha": 1e-6, **args}), labels, 20, Key.root(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(80))
    assert sum(len(set(labels[rows])) == 1 for rows in parts) >= 19


@pytest.mark.parametrize("alpha", [0.001, 0.01])
def test_500_clients_finish_in_time_and_reach_the_minimum_size(alpha):
    labels, began = np.arange(20_000) % 10, time.monotonic()
    parts = partition(Spec("dirichlet", {"alpha": alpha}), labels, 500, Key.root(0))
    assert time.monotonic() - began < 15
    assert min(map(len, parts)) == 10  # no draw reaches it here, only the repair does
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(20_000))


def test_topping_up_takes_the_last_samples_of_the_largest():
    parts = [np.arange(5), np.arange(5, 9), np.arange(0)]
    assert [list(rows) for rows in top_up_small_clients(parts, 3)] == [
        [0, 1, 2],
        [5, 6, 7],
        [3, 4, 8],
    ]
    assert [list(rows) for rows in top_up_small_clients(parts, 1)] == [
        [0, 1, 2, 3],
        [5, 6, 7, 8],
        [4],
    ]


@settings(max_examples=50, deadline=None)
@given(
    alpha=st.sampled_from([1e-300, 1e-6, 1e-3, 0.1, 1e6]),
    places=st.integers(1, 30),
    seed=st.integers(0, 10**6),
)
def test_dirichlet_vectors_never_underflow(alpha, places, seed):
    drawn = dirichlet_vector(np.random.RandomState(seed), alpha, places)
    assert drawn.min() >= 0
    assert drawn.sum() == pytest.approx(1)


def test_the_stream_is_the_frozen_mersenne_twister_of_the_digest():
    key = Key.root(5)
    expected = np.random.RandomState(list(struct.unpack(">8I", key.digest)))
    np.testing.assert_array_equal(stream(key).random_sample(4), expected.random_sample(4))


def test_first_arrivals_have_the_distribution_of_multinomial():
    weights, left = np.array([0.6, 0.3, 0.1, 0.0 + 1e-200]), np.array([3, 10, 20, 5])
    size, runs = 8, 4000
    rng, generator = np.random.RandomState(0), torch.Generator().manual_seed(0)
    which = np.repeat(np.arange(4), left)
    samples = torch.from_numpy(weights[which]).expand(runs, -1)
    expected = torch.from_numpy(which)[torch.multinomial(samples, size, generator=generator)]
    expected = np.stack([np.bincount(row, minlength=4) for row in expected.numpy()])
    raced = np.stack([first_arrivals(rng, weights, left, size) for _ in range(runs)])
    assert (raced <= left).all()
    assert (raced.sum(axis=1) == size).all()
    # the tolerance is 3 to 4 standard errors
    np.testing.assert_allclose(raced.mean(axis=0), expected.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(np.cov(raced.T), np.cov(expected.T), atol=0.12)


def test_first_arrivals_take_classes_without_weight_last():
    counts = first_arrivals(np.random.RandomState(0), np.array([1.0, 1e-200]), np.array([3, 10]), 8)
    np.testing.assert_array_equal(counts, [3, 5])
