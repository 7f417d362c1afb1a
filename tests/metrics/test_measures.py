"""Figures of a run: moving averages against golden numbers and their properties, and errors."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedloom.core.errors import UserError
from fedloom.metrics import score
from fedloom.metrics.client_scores import ClientScores, Spread
from fedloom.metrics.curve import (
    STARTS,
    CurveOptions,
    Start,
    evaluations,
    first_round,
    mean_of_all,
    smoothed,
)
from fedloom.metrics.measures import check, counts_rounds, final_score, is_measure, measured
from support.golden import golden

GOLDEN = golden("fedmlb/server_updates")
AVERAGES: dict[Start, list[float]] = {
    "first": GOLDEN["ema/first_value_init"].tolist(),
    "debiased": GOLDEN["ema/zero_init_debiased"].tolist(),
}
CURVE = {r: a / 100 for r, a in enumerate(GOLDEN["ema/acc"].tolist(), 1)}
every_start = pytest.mark.parametrize("start", STARTS)


@every_start
def test_the_golden_averages(start: Start) -> None:
    line = smoothed(CURVE, 0.9, start)
    assert list(line) == list(CURVE)
    assert [100 * y for y in line.values()] == pytest.approx(AVERAGES[start], abs=1e-12)


@every_start
def test_the_golden_averages_as_measures(start: Start) -> None:
    """An average at a round does not depend on later rounds."""
    for number, figure in enumerate(AVERAGES[start], 1):
        assert measured(f"ema(at={number}, start={start})", CURVE) == pytest.approx(
            figure, abs=1e-12
        )
    assert measured(f"ema(start={start})", CURVE) == pytest.approx(AVERAGES[start][-1], abs=1e-12)
    assert measured(f"ema(of=0.5, start={start})", CURVE) == pytest.approx(
        AVERAGES[start][3], abs=1e-12
    )


def test_the_golden_rounds_to_a_target() -> None:
    assert measured("rounds(to=0.15, ema=0.9)", CURVE) == GOLDEN["ema/rounds_to_15_firstinit"] == 4
    assert (
        measured("rounds(to=0.15, ema=0.9, start=debiased)", CURVE) == 2
    )  # 15.26, where the other stands at 11
    assert measured("rounds(to=0.15)", CURVE) == measured("rounds(to=0.15, ema=0)", CURVE) == 2
    assert (
        measured("rounds(to=0.5, ema=0.9)", CURVE) is None
        and measured("rounds(to=0.5)", CURVE) == 6
    )


curves = st.lists(st.floats(0, 1), min_size=1, max_size=40).map(lambda ys: dict(enumerate(ys, 1)))
momenta = st.floats(0, 0.99)


@given(curves, momenta)
def test_both_starts_equal_their_weights_written_out(
    curve: dict[int, float], momentum: float
) -> None:
    """The weight of each evaluation by its formula, and a bound on how far the starts differ."""
    first, debiased = (smoothed(curve, momentum, start) for start in STARTS)
    for k in curve:
        weights = [(1 - momentum) * momentum ** (k - j) for j in range(1, k + 1)]
        from_zero = sum(w * curve[j] for j, w in enumerate(weights, 1))
        assert debiased[k] == pytest.approx(from_zero / sum(weights), abs=1e-9)
        assert first[k] == pytest.approx(from_zero + momentum**k * curve[1], abs=1e-9)
        assert abs(first[k] - debiased[k]) <= momentum**k + 1e-9


@given(curves.map(lambda c: dict(enumerate(sorted(c.values()), 1))), momenta)
def test_on_a_rising_curve_the_default_start_never_reaches_a_target_first(
    curve: dict[int, float], momentum: float
) -> None:
    first, debiased = (smoothed(curve, momentum, start) for start in STARTS)
    assert all(first[r] <= debiased[r] + 1e-12 <= curve[r] + 2e-12 for r in curve)


@given(curves, momenta, st.sampled_from(STARTS))
def test_what_smoothing_leaves_alone(
    curve: dict[int, float], momentum: float, start: Start
) -> None:
    assert smoothed(curve, 0.0, start) == curve
    flat = dict.fromkeys(curve, curve[1])
    assert (
        smoothed(flat, momentum, start) == flat
    )  # to the last bit, so that a target that is just reached stays reached
    line = smoothed(curve, momentum, start).values()
    assert min(curve.values()) - 1e-12 <= min(line) and max(line) <= max(curve.values()) + 1e-12


SELDOM = {5: 0.1, 10: 0.3, 15: 0.2, 17: 0.6}  # evaluated every 5 rounds and after the last


@pytest.mark.parametrize(
    ("measure", "figure"),
    [
        ("accuracy(at=5)", 10.0),
        ("accuracy(at=10)", 20.0),  # both evaluations up to then
        ("accuracy(at=14)", 20.0),  # no evaluation in between
        ("accuracy(at=17, last=1)", 60.0),
        ("accuracy(last=2)", 40.0),
        ("accuracy(of=0.5, last=1)", 10.0),  # up to round 9
        ("ema(at=10, momentum=0.5)", 100 * (0.1 / 32 + 0.3 * 31 / 32)),  # five rounds
        ("ema(at=14, momentum=0.5)", 100 * (0.1 / 32 + 0.3 * 31 / 32)),
        ("ema(momentum=0.5)", 100 * (0.6 * 3 / 4 + 0.2029296875 / 4)),
        (
            "ema(momentum=0.5, start=debiased)",
            100 * (0.6 * 3 * 2**15 + 0.2 * 31 * 2**10 + 0.3 * 31 * 2**5 + 0.1 * 31) / (2**17 - 1),
        ),
        ("ema(momentum=0)", 60.0),
        ("rounds(to=0.3)", 10),
        ("rounds(to=0.3, ema=0.5)", 17),
        ("rounds(to=0.51, ema=0.5)", None),
    ],
)
def test_averages_over_evaluations_that_are_rounds_apart(
    measure: str, figure: float | None
) -> None:
    assert measured(measure, SELDOM) == (None if figure is None else pytest.approx(figure))
    assert is_measure(measure)


def test_a_share_of_a_run_is_a_whole_round_where_it_comes_to_one() -> None:
    curve = {r: r / 1000 for r in range(1, 101)}
    assert [
        measured(f"accuracy(of={n / 100}, last=1)", curve) for n in range(1, 101)
    ] == pytest.approx([n / 10 for n in range(1, 101)])


@pytest.mark.parametrize(
    ("measure", "pieces"),
    [
        ("ema(at=500)", ("no accuracy at round 500", "from round 5 to 17", "ask for 5 to 17")),
        ("accuracy(at=4)", ("no accuracy at round 4", "ask for 5 to 17")),
        ("accuracy(at=0)", ("measure 'accuracy': at=0 must be at least 1",)),
        ("accuracy(at=5, of=0.5)", ("of=0.5 and at=5 name two rounds", "give one")),
        (
            "ema(momentum=1)",
            ("measure 'ema': momentum=1 must be below 1", "0 is each evaluation by itself"),
        ),
        ("ema(start=zero)", ("start='zero' must be 'first' or 'debiased'",)),
        ("rounds(to=47)", ("to=47 must be below 1",)),
        ("rounds(ema=0.9)", ("parameter 'to' is missing (accuracy to reach)",)),
        ("rounds(to=0.4, emma=0.9)", ("no parameter 'emma'; did you mean 'ema'?",)),
        ("round(to=0.4)", ("no measure 'round(to=0.4)'", "accuracy, ema, group, personal, rounds")),
        ("ema+rounds(to=0.4)", ("no measure 'ema+rounds(to=0.4)'",)),
    ],
)
def test_a_wrong_measure_raises_the_same_error_before_the_run_and_after_it(
    measure: str, pieces: tuple[str, ...]
) -> None:
    for raises in (lambda: measured(measure, SELDOM), lambda: check(measure, 17, 5)):
        with pytest.raises(UserError) as error:
            raises()
        assert all(piece in str(error.value) for piece in pieces), str(error.value)


SCORES = ClientScores(
    mean_class_recall=Spread(0.5, 0.1, 0.2),
    label_weighted_accuracy=Spread(0.75, 0.05, 0.6),
    group_recall={"head": 0.8, "tail": 0.125},
)


@pytest.mark.parametrize(
    ("measure", "figure"),
    [
        ("personal", 50.0),
        ("personal(of=worst_tenth)", 20.0),
        ("personal(score=label_weighted_accuracy)", 75.0),
        ("personal(score=label_weighted_accuracy, of=std)", 5.0),
        ("group(name=tail)", 12.5),
        ("accuracy(last=1)", 60.0),
    ],
)
def test_measures_of_the_models_that_clients_end_with(measure: str, figure: float) -> None:
    assert (
        measured(measure, SELDOM, SCORES) == pytest.approx(figure)
        and is_measure(measure)
        and not counts_rounds(measure)
    )
    check(measure, 17, 5)


@pytest.mark.parametrize(
    ("measure", "scores", "piece"),
    [
        ("personal", None, "the clients' own models are not scored; set evaluate.personal=true"),
        ("group(name=tail)", None, "set evaluate.personal=true"),
        (
            "group(name=middle)",
            SCORES,
            "there is no group 'middle': all classes are equally frequent in training; "
            "raise data.longtail",
        ),
        ("group(name=torso)", SCORES, "name='torso' must be 'head' or 'middle' or 'tail'"),
        ("group", SCORES, "parameter 'name' is missing (third of the classes)"),
        (
            "personal(score=f1)",
            SCORES,
            "score='f1' must be 'mean_class_recall' or 'label_weighted_accuracy'",
        ),
        ("personal(own=1)", SCORES, "no parameter 'own'"),
    ],
)
def test_client_scores_that_are_missing_raise(
    measure: str, scores: ClientScores | None, piece: str
) -> None:
    with pytest.raises(UserError, match=re.escape(piece)):
        measured(measure, SELDOM, scores)


def test_measures_are_checked_against_the_rounds_that_will_be_evaluated() -> None:
    assert (
        evaluations(17, 5) == list(SELDOM)
        and evaluations(3, 1) == [1, 2, 3]
        and evaluations(2, 9) == [2]
    )
    for rounds, every in itertools.product((8, 9), (1, 4)):
        check("ema(at=8)", rounds, every)
    with pytest.raises(UserError, match="evaluated in round 8 only"):
        check("ema(at=7)", 8, 9)


def test_curve_options_smooth_before_targets_and_rounds_are_looked_up() -> None:
    plain = CurveOptions((0.2, 0.5, 0.7), (10, 17))
    assert plain.reached(SELDOM) == [10, 17, None] and plain.accuracy(SELDOM) == pytest.approx(0.3)
    assert plain.at_rounds(SELDOM) == pytest.approx([0.2, 0.3])
    smooth = CurveOptions((0.2, 0.51), (10, 17), 0.5)
    assert smooth.reached(SELDOM) == [10, None] and smooth.accuracy(SELDOM) == pytest.approx(
        0.500732421875
    )
    assert smooth.at_rounds(SELDOM) == pytest.approx([0.29375, 0.500732421875])
    assert CurveOptions(ema=0.0).accuracy(SELDOM) == 0.6


def test_means_over_seeds_need_all_of_them() -> None:
    assert (
        mean_of_all([1.0, 4.0]) == 2.5
        and mean_of_all([1.0, None]) is None
        and mean_of_all([None]) is None
    )
    assert first_round({3: 0.5, 1: 0.5, 2: 0.1}, 0.5) == 1


def test_the_score_of_a_task_is_written_as_in_tables() -> None:
    curve = {1: 0.25, 2: 0.25}
    own = ClientScores(metrics={"r2": Spread(0.5, 0.1, 0.2)})
    r2, share = score.SCORES["regression"], score.SCORES["multilabel"]
    assert final_score(r2, curve, None, personal=False) == 0.25
    assert final_score(share, curve, None, personal=False) == 25.0
    assert final_score(r2, curve, own, personal=True) == 0.5
    # the global model where clients have no other; nothing where theirs could not be scored
    assert final_score(r2, curve, ClientScores(), personal=True) == 0.25
    assert final_score(r2, curve, ClientScores(unscored={0: "it failed"}), personal=True) is None


def test_the_score_of_classes_is_the_measure() -> None:
    scores = ClientScores(Spread(0.1, 0.0, 0.1), Spread(0.7, 0.0, 0.6))
    for personal, measure in ((False, "accuracy"), (True, "personal")):
        found = final_score(score.SCORES["classification"], CURVE, scores, personal)
        assert found == measured(measure, CURVE, scores)
