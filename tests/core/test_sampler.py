"""Laws of every sampler, and frequencies against probabilities computed by hand."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.sampler import (
    SAMPLERS,
    Sampler,
    availability,
    by_size,
    everyone,
    in_advance,
    uniform,
)
from support.golden import golden

KEY = Key.root(1)
sizes_and_count = st.lists(st.integers(1, 500), min_size=1, max_size=30).flatmap(
    lambda sizes: st.tuples(st.just(sizes), st.integers(1, len(sizes)))
)


@pytest.mark.parametrize(
    "make", [uniform, by_size, in_advance], ids=["uniform", "by size", "in advance"]
)
@given(sizes_and_count, st.integers(0, 50))
def test_per_round_different_clients_in_order(
    make: type, drawn: tuple[list[int], int], round: int
) -> None:
    sizes, count = drawn
    chosen = make(count)(round, KEY.fold(round), sizes)
    assert len(chosen) == count
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(len(sizes)))
    assert chosen == make(count)(round, KEY.fold(round), sizes)


@given(sizes_and_count, st.integers(0, 50), st.floats(0.001, 1), st.integers(0, 5))
def test_availability_is_never_empty(
    drawn: tuple[list[int], int], round: int, share: float, period: int
) -> None:
    sizes, count = drawn
    chosen = availability(count, share, period)(round, KEY.fold(round), sizes)
    assert 1 <= len(chosen) <= count
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(len(sizes)))


def test_everyone_returns_all_clients() -> None:
    assert everyone()(3, KEY, [4, 4, 4]) == [0, 1, 2]


def frequencies(sampler: Sampler, sizes: Sequence[int], rounds: int) -> list[float]:
    met = Counter(c for t in range(rounds) for c in sampler(t, KEY.fold("cohort", t), sizes))
    return [met[c] / rounds for c in range(len(sizes))]


def inclusion(sizes: Sequence[int]) -> list[float]:
    """Probability of being among two clients drawn by size without replacement."""
    p = [s / sum(sizes) for s in sizes]
    return [
        p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(len(p)) if j != i) for i in range(len(p))
    ]


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (uniform(1), [0.25] * 4),
        (uniform(3), [0.75] * 4),
        (by_size(1), [0.1, 0.2, 0.3, 0.4]),
        (by_size(2), inclusion([10, 20, 30, 40])),
        (availability(4, 0.3), None),
    ],
    ids=["uniform 1", "uniform 3", "by size 1", "by size 2", "availability"],
)
def test_frequencies(sampler: Sampler, expected: list[float] | None) -> None:
    """Within four standard deviations of 4,000 fixed draws."""
    none_available = 0.7**4  # then the round waits for one of the four
    expected = expected or [0.3 + none_available / 4] * 4
    for seen, chance in zip(frequencies(sampler, [10, 20, 30, 40], 4000), expected, strict=True):
        assert seen == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 4000) ** 0.5)


def test_in_advance_gives_the_cohorts_of_the_authors() -> None:
    cohorts = golden("fedalign/g_partition_sampling")["sampled_clients_64x025_seed1"].tolist()
    state = random.getstate()
    for t, expected in enumerate(cohorts):
        assert in_advance(16, seed=1)(t, KEY.fold(t), [1] * 64) == sorted(expected)
    assert random.getstate() == state


def test_full_availability_gives_per_round_clients() -> None:
    assert {len(availability(3, 1.0)(t, KEY.fold(t), [1] * 8)) for t in range(50)} == {3}


def test_availability_follows_a_daily_cycle() -> None:
    """Client 0 is always reached at its time of day and never half a day later."""
    sampler = availability(8, 0.5, period=4)
    days = [
        [sampler(4 * day + hour, KEY.fold(4 * day + hour), [1] * 8) for hour in range(4)]
        for day in range(60)
    ]
    assert all(0 in day[0] for day in days)
    assert not any(0 in day[2] for day in days)
    assert any(1 in day[2] for day in days)


@pytest.mark.parametrize("make", [uniform, by_size, in_advance])
def test_more_clients_per_round_than_exist(make: type) -> None:
    with pytest.raises(UserError, match="per_round=4 is more than the 3 clients"):
        make(4)(0, KEY, [1, 1, 1])


def test_every_sampler_has_a_name() -> None:
    assert set(SAMPLERS) == {"uniform", "all", "by-size", "availability", "in-advance"}
    assert all(make()(0, KEY, [3] * 9) for make in SAMPLERS.values())
