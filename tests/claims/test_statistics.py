"""The statistics: against scipy, against numbers worked out by hand, and coverage by simulation."""

import math

import numpy as np
import pytest

from fedloom.claims import statistics as st

TRIALS = 1500


def share_covered(draws: np.ndarray, truth: float, level: float) -> float:
    """How often the interval of a row of draws holds the truth."""
    found = [st.estimate(list(row)) for row in draws]
    ends = [one.interval(level) for one in found if one is not None]
    return float(np.mean([low <= truth <= high for low, high in ends]))


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_intervals_of_normal_differences_cover_as_often_as_they_say(
    seeds: int, level: float
) -> None:
    draws = np.random.default_rng(seeds).normal(0.7, 1.3, (TRIALS, seeds))
    error = math.sqrt(level * (1 - level) / TRIALS)
    assert share_covered(draws, 0.7, level) == pytest.approx(level, abs=4 * error)


@pytest.mark.parametrize("seeds", [3, 5, 8])
def test_intervals_of_skewed_differences_lose_a_few_percent_at_most(seeds: int) -> None:
    """A gamma distribution of skewness 1: far more skewed than differences of accuracies."""
    draws = np.random.default_rng(seeds).gamma(4.0, 0.5, (TRIALS, seeds))
    assert 0.91 <= share_covered(draws, 2.0, 0.95) <= 0.97


def test_log_ratios_of_log_normal_costs_are_covered() -> None:
    draws = np.random.default_rng(0).lognormal(math.log(1.6), 0.2, (TRIALS, 4))
    assert share_covered(np.log(draws), math.log(1.6), 0.95) == pytest.approx(0.95, abs=0.023)


def test_unpaired_intervals_cover() -> None:
    rng, hits = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        found = st.unpaired(list(rng.normal(3, 0.5, 4)), list(rng.normal(1, 2, 6)))
        assert found is not None
        low, high = found.interval()
        hits += low <= 2 <= high
    assert 0.93 <= hits / TRIALS <= 0.98


def test_p_values_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs scipy to compare with")
    values = [1.2, 0.4, 2.2, 1.9, 0.1]
    found = st.estimate(values)
    assert found is not None
    for bound in (-1.0, 0.9, 1.16, 3.0):
        for ours, side in ((found.p_above, "greater"), (found.p_below, "less")):
            expected = stats.ttest_1samp(values, bound, alternative=side).pvalue
            assert ours(bound) == pytest.approx(expected)


def test_welch_is_scipys_but_for_whole_degrees_of_freedom() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs scipy to compare with")
    ours, theirs = [3.0, 4.0, 8.0], [1.0, 1.5, 0.5, 2.0]
    found, expected = st.unpaired(ours, theirs), stats.ttest_ind(ours, theirs, equal_var=False)
    assert found is not None
    assert found.mean / found.error == pytest.approx(expected.statistic)
    assert found.freedom == math.floor(expected.df)


def test_equivalence_is_a_90_percent_interval_inside_the_margin() -> None:
    """Differences 0.1, 0.2, 0.6: mean 0.3, error 0.1528, t of 90 % 2.92: up to 0.746."""
    found = st.estimate([0.1, 0.2, 0.6])
    assert found is not None
    assert found.interval(0.9)[1] == pytest.approx(0.7461, abs=1e-3)
    assert st.is_equivalent(found, 0.75) and not st.is_equivalent(found, 0.74)


def test_an_exact_number_has_no_error() -> None:
    found = st.exact(3.0)
    assert found.interval() == (3.0, 3.0)
    assert (found.p_above(2.9), found.p_above(3.0), found.p_below(3.1)) == (0.0, 1.0, 0.0)


def test_too_few_seeds_have_no_estimate() -> None:
    assert st.estimate([]) is None and st.estimate([1.0]) is None
    assert st.unpaired([1.0, 2.0], [1.0]) is None


def test_choosing_on_the_other_seeds_is_not_optimistic() -> None:
    """The best of five equal settings is no better than one, unless it is chosen on its seed."""
    rng, gains, naive = np.random.default_rng(2), [], []
    for _ in range(400):
        inside = [dict(enumerate(rng.normal(0, 1, 5))) for _ in range(5)]
        outside = [dict(enumerate(rng.normal(0, 1, 5)))]
        found = st.differences(st.best_of_other_seeds(inside), st.best_of_other_seeds(outside))
        gains.append(np.mean(list(found.values())))
        naive.append(max(np.mean(list(g.values())) for g in inside))
    assert abs(np.mean(gains)) < 0.1 < 0.4 < np.mean(naive)


@pytest.mark.parametrize(
    ("ours", "theirs", "last", "expected"),
    [
        (20, 10, None, math.log(2)),
        (None, 10, 99, math.log(10)),
        (10, None, 99, -math.log(10)),
        (None, None, 99, None),
        (None, 10, None, None),
    ],
)
def test_rounds_that_are_not_reached(
    ours: float | None, theirs: float | None, last: int | None, expected: float | None
) -> None:
    assert st.log_rounds(ours, theirs, last) == (
        None if expected is None else pytest.approx(expected)
    )


def test_shares_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs scipy to compare with")
    for successes, trials in ((0, 3), (2, 5), (5, 5), (7, 9)):
        expected = stats.binomtest(successes, trials).proportion_ci(0.95, "exact")
        assert st.share_interval(successes, trials) == pytest.approx(tuple(expected))


def test_holm_on_the_example_of_a_textbook() -> None:
    """0.005 < 0.05 / 4, 0.01 < 0.05 / 3, but 0.03 > 0.05 / 2: the last two are not rejected."""
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert st.survives_holm(p) == {"a", "d"}
    assert st.survives_holm({}) == set()


def test_holm_keeps_the_family_wise_error() -> None:
    rng = np.random.default_rng(3)
    p_values = rng.uniform(size=(2000, 20))
    wrong = [bool(st.survives_holm({str(n): p for n, p in enumerate(row)})) for row in p_values]
    assert np.mean(wrong) == pytest.approx(0.05, abs=0.015)


def test_half_widths_are_those_of_the_table() -> None:
    """In units of the standard deviation, for 3 to 8 seeds."""
    table = {3: 2.48, 4: 1.59, 5: 1.24, 6: 1.05, 8: 0.84}
    assert {n: round(st.half_width(1.0, n), 2) for n in table} == table


def test_seeds_needed() -> None:
    found = st.estimate([0.0, 1.0, 2.0])  # mean 1, standard deviation 1
    assert found is not None
    assert st.seeds_to_decide(found, 2.25) == 5  # a half-width of 1.24
    assert st.seeds_to_decide(found, 2.2) == 6  # 1.05
    assert st.seeds_to_decide(found, 1.0) is None
