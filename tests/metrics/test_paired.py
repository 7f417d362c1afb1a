"""Paired differences: hand-computed intervals, exact quantiles, and coverage by simulation."""

import math

import numpy as np
import pytest

from fedloom.metrics.paired import paired_difference, t_probability, t_quantile


def test_a_hand_computed_interval() -> None:
    """Differences 2, 1 and 3: mean 2, deviation 1, and t of 2 degrees of freedom is 4.302653."""
    found = paired_difference({0: 3.0, 1: 5.0, 2: 9.0}, {0: 1.0, 1: 4.0, 2: 6.0})
    assert found is not None and found.interval is not None
    half = 4.302652729911275 / math.sqrt(3)
    assert (found.mean, found.seeds) == (2.0, 3)
    assert found.interval == pytest.approx((2 - half, 2 + half))
    assert not found.excludes_zero


def test_only_shared_seeds_count_and_are_matched_by_seed() -> None:
    found = paired_difference({3: 0.9, 1: 0.5, 7: 9.0}, {1: 0.4, 2: 5.0, 3: 0.8})
    assert found is not None and found.interval is not None and found.seeds == 2
    assert found.interval == pytest.approx((0.1, 0.1))  # both differ by the same
    assert found.excludes_zero


def test_one_seed_has_no_interval_and_no_seed_no_difference() -> None:
    single = paired_difference({0: 0.5}, {0: 0.4, 1: 0.9})
    assert single is not None and single.interval is None and not single.excludes_zero
    assert paired_difference({0: 0.5}, {1: 0.4}) is None


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 120])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs scipy to compare with")
    for probability in (0.6, 0.95, 0.975, 0.9995):
        assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom))
    for value in (0.0, 0.3, 2.0, 40.0):
        assert t_probability(value, freedom) == pytest.approx(stats.t.cdf(value, freedom))


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_the_interval_covers_the_true_difference_as_often_as_it_says(seeds: int) -> None:
    """Seeds share a strong effect, which the pairing removes: unpaired it would be far too wide."""
    draws, trials, truth = np.random.default_rng(seeds), 4000, 0.03
    covered, widths = 0, []
    for _ in range(trials):
        shared = draws.normal(0.5, 0.2, seeds)
        ours = shared + truth + draws.normal(0, 0.01, seeds)
        theirs = shared + draws.normal(0, 0.01, seeds)
        found = paired_difference(dict(enumerate(ours)), dict(enumerate(theirs)))
        assert found is not None and found.interval is not None
        low, high = found.interval
        covered += low <= truth <= high
        widths.append(high - low)
    error = math.sqrt(0.95 * 0.05 / trials)
    assert abs(covered / trials - 0.95) < 4 * error
    assert np.median(widths) < 0.3  # the shared effect has a standard deviation of 0.2
