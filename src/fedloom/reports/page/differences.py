"""Differences between methods, paired over seeds, with confidence intervals."""

from __future__ import annotations

import itertools

from fedloom.metrics.paired import PairedDifference, paired_difference
from fedloom.metrics.score import Score
from fedloom.reports.page import svg
from fedloom.reports.page.facts import Facts, Measure
from fedloom.reports.page.html import Html, element, folded, joined, note, section, table
from fedloom.reports.page.numbers import interval, signed
from fedloom.reports.page.results import named

MAX_PAIRS = 66  # twelve methods; of more, only the differences from the baseline are listed
ROW_HEIGHT = 26.0
EXPLANATION = (
    "Runs with the same seed have the same clients, cohorts and batches, so seeds are compared one "
    "by one. The interval is that of Student's t over the seeds' differences; an interval that "
    "contains 0 is compatible with no difference. Each interval stands for itself: among twenty "
    "comparisons without any difference, about one misses 0."
)
ONE_SEED = (
    "Each method has one seed, so there are no confidence intervals: run each with at least three "
    "seeds (fedloom compare --seeds 3)."
)


def differences(facts: Facts) -> Html | None:
    """Of every other row from the baseline, for each measure; None for a single row."""
    if len(facts.rows) < 2:
        return None
    parts = [part for measure in facts.measures for part in _of_measure(facts, measure)]
    without = all(len(row.seeds) < 2 for row in facts.rows)
    return section(
        f"Differences from {facts.baseline.name}",
        "differences",
        *parts,
        note(ONE_SEED if without else EXPLANATION),
    )


def _of_measure(facts: Facts, measure: Measure) -> list[Html]:
    base = facts.baseline.name
    found = {
        row.name: paired_difference(measure.values[row.name], measure.values[base])
        for row in facts.rows
        if row.name != base
    }
    known = {name: d for name, d in found.items() if d is not None}
    parts = [element("h3", f"In {measure.title}")]
    if not known:
        return [*parts, note("No seed is shared.")]
    columns = ["method", facts.score.points, "95 % interval", "seeds"]
    rows = [[named(facts, name), *_figures(d, facts.score)] for name, d in known.items()]
    return [*parts, _chart(facts, known), table(columns, rows), *_pairs(facts, measure)]


def _figures(difference: PairedDifference, score: Score) -> list[object]:
    ends = interval(difference, score)
    shown = element("strong", ends) if difference.excludes_zero else ends
    return [signed(difference.mean, score), shown, difference.seeds]


def _pairs(facts: Facts, measure: Measure) -> list[Html]:
    """All pairs of rows as a table."""
    pairs = list(itertools.combinations([row.name for row in facts.rows], 2))
    if not len(facts.rows) - 1 < len(pairs) <= MAX_PAIRS:
        return []
    rows = []
    for one, other in pairs:
        found = paired_difference(measure.values[other], measure.values[one])
        if found is not None:
            figures = _figures(found, facts.score)
            rows.append([named(facts, other), named(facts, one), *figures])
    columns = ["method", "minus", facts.score.points, "95 % interval", "seeds"]
    return [folded("All pairs", table(columns, rows, words=2))]


def _chart(facts: Facts, found: dict[str, PairedDifference]) -> Html:
    ends, scale = [0.0], facts.score.scale
    for difference in found.values():
        ends += [scale * end for end in (difference.mean, *(difference.interval or ()))]
    height = svg.TOP + svg.BOTTOM + ROW_HEIGHT * len(found)
    axes = svg.Axes(svg.bounds(ends), (0.0, float(len(found))), height, left=130.0)
    zero, _ = axes.at(0, 0)
    pieces: list[object] = [
        svg.frame(axes, f"{facts.score.points} against {facts.baseline.name}"),
        element("path", d=f"M{zero:.1f} {svg.TOP:g}V{height - svg.BOTTOM:g}", class_="zero"),
    ]
    for number, (name, difference) in enumerate(found.items()):
        pieces.append(_bar(axes, facts, name, difference, len(found) - number - 0.5))
    return svg.chart(axes, "Differences with confidence intervals", *pieces)


def _bar(
    axes: svg.Axes, facts: Facts, name: str, difference: PairedDifference, height: float
) -> Html:
    style, score = facts.styles[name], facts.score
    x, y = axes.at(score.scale * difference.mean, height)
    ends = interval(difference, score) or "one seed"
    tip = f"{name}: {signed(difference.mean, score)} {score.points}\n{ends}"
    pieces: list[object] = [svg.text(axes.left - 8, y + 4, short(name, 18), "end")]
    if difference.interval is not None:
        left, right = (axes.at(score.scale * end, height)[0] for end in difference.interval)
        shape = (
            f"M{left:.1f} {y:.1f}H{right:.1f}M{left:.1f} {y - 4:.1f}v8M{right:.1f} {y - 4:.1f}v8"
        )
        pieces.append(element("path", d=shape, class_=f"line c{style.colour}"))
    return joined([*pieces, svg.dot(x, y, style, tip)])


def short(name: str, length: int) -> str:
    """A name that fits next to a chart.

    >>> short("fedprox(mu=0.1)+fedavgm", 18)
    'fedprox(mu=0.1)+f…'
    """
    return name if len(name) <= length else f"{name[: length - 1]}…"
