"""Verdicts on one claim: what decides, what does not, and how it is said."""

import pytest

from claims.result_text import figure
from claims.result_text import result as result_file
from fedloom.claims.claim import Claim, claims
from fedloom.claims.verdict import Verdict, verdict

BASE = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


def claim(name: str) -> Claim:
    return next(one for one in claims() if one.id == name)


OVER_FEDAVG = claim("fedmix/cifar10-over-fedavg")  # a gain of more than 1


def judged(gains: list[float], **other: object) -> Verdict:
    """The verdict on FedMix over FedAvg with these gains by seed."""
    base = BASE[: len(gains)]
    ours = [b + gain for b, gain in zip(base, gains, strict=True)]
    found = verdict(
        OVER_FEDAVG, result_file(figure("fedmix", ours), figure("fedavg", base), **other)
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gains", "outcome"),
    [
        ([2.0, 2.2, 2.4], "agrees"),  # 2.2 +- 0.5
        ([0.0, 0.2, 0.4], "differs"),  # 0.2 +- 0.5
        ([1.0, 1.2, 1.4], "not decided"),  # 1.2 +- 0.5
        ([2.0, 2.0], "not decided"),  # two seeds, however alike
        ([2.0, 2.0, 2.0], "not decided"),  # no spread to judge by
        ([9.0], "not decided"),
    ],
)
def test_a_gain(gains: list[float], outcome: str) -> None:
    found = judged(gains)
    assert (found.outcome, found.seeds, found.fair) == (outcome, len(gains), True)


def test_an_extended_suite_is_judged_at_99_percent() -> None:
    """2.2 +- 0.50 at 95 %, but +- 1.15 at 99 %, which no longer excludes 1.1."""
    gains = [2.0, 2.2, 2.4]
    assert judged(gains).outcome == "agrees"
    assert judged([g - 0.1 for g in gains]).outcome == "agrees"
    extended = judged([g - 0.1 for g in gains], extended=True)
    assert extended.outcome == "not decided"
    assert extended.judgement is not None and extended.judgement.level == 0.99


@pytest.mark.parametrize(("met", "fair"), [(True, True), (False, False), (None, False)])
def test_a_test_is_fair_only_if_its_gate_was_met(met: bool | None, fair: bool) -> None:
    found = judged([2.0, 2.2, 2.4], gate={"met": met, "why": "Global Mixup gains 0.2"})
    assert (found.outcome, found.fair, found.gate) == ("agrees", fair, "Global Mixup gains 0.2")
    assert ("not a fair test: Global Mixup gains 0.2" in found.sentence) is not fair


def test_the_sentences() -> None:
    assert judged([2.0, 2.2, 2.4]).sentence == (
        "agrees: fedmix - fedavg +2.20 [+1.70, +2.70], 95%, 3 seeds; asked: above 1"
    )
    assert judged([1.0, 1.2, 1.4]).sentence == (
        "not decided: fedmix - fedavg +1.20 [+0.70, +1.70], 95%, 3 seeds; asked: above 1; "
        "11 seeds would decide"
    )
    assert judged([9.0]).sentence == (
        "not decided: fedmix - fedavg +9.00, 1 seed; asked: above 1; "
        "one seed gives no interval; at least 3 are needed to decide"
    )
    assert judged([2.0, 2.0]).sentence.endswith("2 seeds decide nothing; run 3 or more")
    assert Verdict(OVER_FEDAVG, "not tested").sentence.startswith("not tested: no result file")


def test_seeds_that_do_not_differ_have_no_interval() -> None:
    """As rounds to a target, which are whole numbers, may come out."""
    faster = claim("fedmix/cifar100-rounds-to-40")
    about = {"preset": "fedmix/table1-cifar100", "column": "rounds", "metric": "rounds"}
    rows = (figure(row, [28, 20, 26], **about) for row in ("fedavg", "fedmix"))
    found = verdict(faster, result_file(*rows))
    assert found is not None and (found.outcome, found.p) == ("not decided", 1.0)
    assert found.sentence == (
        "not decided: fedavg / fedmix 1, 3 seeds; asked: 1.5 to 9; "
        "all seeds give the same difference, so there is no interval"
    )


def test_how_many_seeds_would_decide_is_said_at_the_level_of_an_extension() -> None:
    """1.2 with a spread of 0.2 is above 1 at 99 % with 11 seeds (t 3.169): 1.2 - 0.19."""
    found = judged([1.0, 1.2, 1.4])
    assert found.judgement is not None and found.judgement.seeds_to_decide == 11
    assert judged([0.7, 1.01, 1.3]).sentence.endswith("more than 200 seeds would decide")
    again = judged([1.0, 1.2, 1.4], extended=True)
    assert again.sentence.endswith("already extended; a new suite would be needed")


def test_as_json() -> None:
    found = judged([2.0, 2.2, 2.4]).describe()
    assert (found["id"], found["paper"]) == ("fedmix/cifar10-over-fedavg", "fedmix")
    assert (found["verdict"], found["fair"], found["seeds"]) == ("agrees", True, 3)
    assert found["interval"] == pytest.approx([1.703, 2.697], abs=1e-3)
    nothing = Verdict(OVER_FEDAVG, "not tested").describe()
    assert (nothing["interval"], nothing["seeds"], nothing["fair"]) == (None, 0, False)


def test_equality_takes_the_90_percent_interval() -> None:
    """0.3 +- 0.657 at 95 % and +- 0.446 at 90 %: equal within 0.75, as two one-sided tests."""
    level = claim("fedmix/shakespeare-fedprox-no-gain")  # within 0.5
    rows = {"fedprox": [10.1, 11.2, 12.3], "fedavg": [10.0, 11.0, 12.0]}
    figures = [figure(row, values, preset="fedmix/table2") for row, values in rows.items()]
    found = verdict(level, result_file(*figures))
    assert found is not None and found.outcome == "agrees"
    assert found.judgement is not None and found.judgement.level == pytest.approx(0.9)
    assert found.judgement.interval == pytest.approx((0.0314, 0.3686), abs=1e-3)


def cost(row: str, macs: float) -> dict:
    return figure(row, [macs], preset="fedalign/cost-table5", column="mflops", metric="macs")


@pytest.mark.parametrize(("ratio", "outcome"), [(3.0, "agrees"), (2.5, "differs")])
def test_one_counted_cost_decides(ratio: float, outcome: str) -> None:
    counted = result_file(cost("MOON", ratio), cost("FedAvg", 1.0))
    found = verdict(claim("fedalign/cost-moon-macs"), counted)
    assert found is not None
    assert (found.outcome, found.p, found.survives_holm) == (outcome, None, None)
    assert "counted" in found.sentence


def moon_takes(*seconds: float) -> Verdict:
    """The verdict on MOON's step time, with these seconds by turn; FedAvg takes one."""
    about = {"preset": "fedalign/table5", "column": "step_seconds", "metric": "step_seconds"}
    rows = {"moon": list(seconds), "fedavg": [1.0] * len(seconds)}
    timed = result_file(*(figure(row, values, **about) for row, values in rows.items()))
    found = verdict(claim("fedalign/time-moon-3x"), timed)
    assert found is not None
    return found


def test_one_timing_does_not_decide() -> None:
    """A timed cost has an error, which needs repetitions."""
    assert moon_takes(3.0).outcome == "not decided"


def test_timings_are_repeated_in_turns() -> None:
    assert "95%, 3 turns;" in moon_takes(3.0, 3.01, 3.02).sentence
    assert "turns would decide" in moon_takes(3.3, 3.5, 3.7).sentence


def test_an_order_agrees_only_if_every_pair_does() -> None:
    between = claim("fedmix/cifar10-naivemix-between")  # fedmix, naivemix, fedavg
    close = {"fedmix": [20.0, 21.0, 22.0], "naivemix": [15.0, 16.1, 17.0], "fedavg": BASE[:3]}
    found = verdict(between, result_file(*(figure(*row) for row in close.items())))
    assert found is not None and found.outcome == "agrees"
    swapped = {**close, "naivemix": close["fedavg"], "fedavg": close["naivemix"]}
    found = verdict(between, result_file(*(figure(*row) for row in swapped.items())))
    assert found is not None and found.outcome == "differs"
    assert found.judgement is not None
    assert found.judgement.comparison.label == "naivemix - fedavg"


def test_of_several_open_comparisons_the_one_that_needs_most_seeds_is_shown() -> None:
    between = claim("fedmix/cifar10-naivemix-between")  # fedmix, naivemix, fedavg
    # FedMix gains 2.0, 0.9 and 2.7 on NaiveMix: 6 seeds; NaiveMix 2.0, 0.5 and 3.0 on FedAvg: 7
    rows = {"fedmix": [14.0, 12.4, 17.7], "naivemix": [12.0, 11.5, 15.0], "fedavg": BASE[:3]}
    found = verdict(between, result_file(*(figure(*row) for row in rows.items())))
    assert found is not None and found.outcome == "not decided" and found.judgement is not None
    assert found.judgement.comparison.label == "naivemix - fedavg"
    assert found.judgement.seeds_to_decide == 7


def test_how_many_seeds_would_decide_a_share() -> None:
    """With about three seeds of four, 20 of 26 are the first: 2 P(at most 6 of 26) = 0.0094."""
    unreached = claim("fedmlb/slower-target-unreached")
    rows: dict[str, list[float | None]] = {
        "fedmlb": [90.0] * 8,
        "fedavg": [None] * 6 + [95.0] * 2,
    }
    cell = {"preset": "fedmlb/overview", "column": "target4"}
    found = verdict(unreached, result_file(*(figure(*row, **cell) for row in rows.items())))
    assert found is not None and found.outcome == "not decided" and found.judgement is not None
    assert found.judgement.seeds_to_decide == 26
    assert "; 26 seeds would decide" in found.sentence


def test_without_shared_seeds_nothing_is_tested() -> None:
    ours = figure("fedmix", [1.0])
    theirs = {**figure("fedavg", []), "by_seed": {"7": 1.0}}
    assert verdict(OVER_FEDAVG, result_file(ours, theirs)) is None
