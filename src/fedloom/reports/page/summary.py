"""The first sentences of the page: what was compared, what came out, and how sure that is."""

from __future__ import annotations

from fedloom.metrics.curve import averaged_evaluations
from fedloom.metrics.paired import PairedDifference, paired_difference
from fedloom.metrics.score import Score
from fedloom.reports.comparison import described
from fedloom.reports.page.facts import Facts, Measure
from fedloom.reports.page.html import Html, element, joined, note
from fedloom.reports.page.numbers import interval, several, signed


def summary(facts: Facts) -> Html:
    """What was compared, the result, and what a reader must know about it."""
    paragraphs = [
        element("p", setting(facts)),
        element("p", result(facts), class_="lead"),
        note(how_measured(facts)),
        _unfinished(facts),
        *(note("Note: ", line) for line in facts.comparison.notes),
    ]
    return element("section", joined(paragraphs), id="summary")


def setting(facts: Facts) -> str:
    """What was compared."""
    rounds = {run.config.rounds for run in facts.all_runs}
    length = f", {several(rounds.pop(), 'round')}" if len(rounds) == 1 else ""
    return f"{several(len(facts.rows), 'method')} on {described(facts.all_runs)}{length}."


def result(facts: Facts) -> str:
    """The best row and how it compares with the baseline, in one sentence."""
    measure = facts.measures[0]
    means = {name: _mean(measure, name) for name in measure.values if measure.values[name]}
    if not means:
        return "No score is known yet."
    best = max(means, key=lambda name: means[name])
    score = facts.score
    value = f"{score.text(means[best], 1)}{score.unit}"
    start = f"{best} has the highest {measure.name}, {value}"
    base = facts.baseline.name
    if len(means) == 1:
        return f"{best} has {measure.name} {value}."
    if best == base:
        rival = max((name for name in means if name != best), key=lambda name: means[name])
        return f"{start}, {_against(measure, best, rival, score)}"
    return f"{start}, {_against(measure, best, base, score)}"


def _mean(measure: Measure, name: str) -> float:
    values = measure.values[name].values()
    return sum(values) / len(values)


def _against(measure: Measure, best: str, other: str, score: Score) -> str:
    """How far the best is from another row, and whether that could be chance."""
    found = paired_difference(measure.values[best], measure.values[other])
    if found is None:
        return f"and shares no seed with {other}, so the two cannot be compared seed by seed."
    points = " points" if score.is_share else ""
    return f"{signed(found.mean, score)}{points} against {other} {_certainty(found, score)}."


def _certainty(found: PairedDifference, score: Score) -> str:
    if found.interval is None:
        return "with one seed: there is no confidence interval, and this may be chance"
    ends = f"(95 % confidence interval {interval(found, score)}, paired over {found.seeds} seeds)"
    if found.excludes_zero:
        return ends
    return f"{ends}: the interval contains 0, so this may be chance"


def how_measured(facts: Facts) -> str:
    """How the accuracy of a run is taken from its curve."""
    options, heading = facts.comparison.options, facts.comparison.accuracy_heading
    what = heading[:1].upper() + heading[1:]
    if options.ema is not None:
        return f"{what}: moving average {options.ema:g} per round, at the end of training."
    return f"{what} of a run: {averaged_evaluations(len(row.curve) for row in facts.rows)}."


def _unfinished(facts: Facts) -> Html | None:
    begun = [run for run in facts.all_runs if run.result is None]
    if not begun:
        return None
    lines = ", ".join(f"{run.name} ({len(run.history)} of {run.config.rounds})" for run in begun)
    return element("p", f"Not finished yet: {lines} rounds.", class_="warning")
