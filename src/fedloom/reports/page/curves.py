"""Accuracy by round, with a band over seeds; every line of every chart has a legend entry."""

from __future__ import annotations

from collections.abc import Sequence

from fedloom.metrics.score import Score
from fedloom.reports.colours import Style, drawing_order
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.page import svg
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, folded, joined, note, section, table
from fedloom.reports.plots import same_curve_note, solid_twins_above, target_label

SHOWN_ROUNDS = 12  # of the table under the chart


def curves(facts: Facts) -> Html:
    """The chart, its legend, and the same values as a table."""
    return section(
        f"{facts.score.title} by round",
        "curves",
        _chart(facts),
        legend(facts, notes=True),
        _targets(facts),
        note(_explanation(facts)),
        folded("The values", _values(facts)),
    )


def _chart(facts: Facts) -> Html:
    rows, options, score = facts.rows, facts.comparison.options, facts.score
    axes = _axes(facts)
    row_styles = [facts.styles[row.name] for row in rows]
    order = drawing_order(row_styles)
    lines = [
        svg.line(
            axes,
            as_drawn(rows[n].smoothed, score),
            row_styles[n],
            under=solid_twins_above(rows, n, row_styles),
        )
        for n in order
    ]
    pieces = [
        svg.frame(axes, "round", facts.comparison.axis_name, x_text=whole),
        *(svg.band(axes, _band(rows, n), row_styles[n]) for n in order),
        *(_averaged(axes, rows[n], row_styles[n]) for n in order),
        *lines,
        svg.hover(axes, _tips(rows)),
        *(
            svg.level(axes, score.scale * t, target_label(options, t, score))
            for t in options.targets
        ),
    ]
    what = facts.comparison.accuracy_title
    return svg.chart(axes, f"{what} by round, a line per method", *pieces)


def _axes(facts: Facts) -> svg.Axes:
    """Room for all curves, bands and targets."""
    rows = facts.rows
    every = [y for row in rows for _, y in row.smoothed]
    every += [y for row in rows for _, *ends in row.band for y in ends]
    every += facts.comparison.options.targets
    first, last = (end(n for row in rows for n, _ in row.smoothed) for end in (min, max))
    scale = facts.score.scale
    return svg.Axes((first, max(last, first + 1)), svg.bounds([scale * y for y in every]))


def whole(value: float) -> str:
    """A round; nothing between two rounds."""
    return svg.plain(value) if value == round(value) else ""


def as_drawn(curve: Sequence[tuple[int, float]], score: Score) -> list[svg.Point]:
    """Rounds and accuracies, of shares in percent."""
    return [(float(number), score.scale * y) for number, y in curve]


def _band(rows: Sequence[ComparisonRow], row: int) -> list[tuple[float, float, float]]:
    """The range over seeds; nothing if an earlier row has the same curve, and so its band."""
    if same_curve_note(rows, row):
        return []
    scale = rows[row].score.scale
    return [(float(number), scale * low, scale * high) for number, low, high in rows[row].band]


def _averaged(axes: svg.Axes, row: ComparisonRow, style: Style) -> Html | None:
    """The accuracies under a moving average, as a thin line."""
    if row.curve == row.smoothed:
        return None
    return element("g", svg.line(axes, as_drawn(row.curve, row.score), style), class_="thin")


def _tips(rows: Sequence[ComparisonRow]) -> list[tuple[float, str]]:
    tables, score = {row.name: dict(row.smoothed) for row in rows}, rows[0].score
    numbers = svg.thinned(sorted({number for known in tables.values() for number in known}))
    return [(float(n), "\n".join([f"round {n}", *_lines(tables, n, score)])) for n in numbers]


def _lines(tables: dict[str, dict[int, float]], number: int, score: Score) -> list[str]:
    known = {name: curve[number] for name, curve in tables.items() if number in curve}
    ranked = sorted(known, key=lambda name: -known[name])
    return [f"{score.text(known[name], 1)}{score.unit} {name}" for name in ranked]


def legend(facts: Facts, names: Sequence[str] | None = None, notes: bool = False) -> Html:
    """The rows with their colours. notes: say where two curves are the same."""
    entries = []
    for number, row in enumerate(facts.rows):
        if names is None or row.name in names:
            same = same_curve_note(facts.rows, number) if notes else ""
            style = facts.styles[row.name]
            entries.append(element("li", svg.swatch(style), f" {row.name}{same}"))
    return element("ul", *entries, class_="legend")


def _targets(facts: Facts) -> Html:
    options = facts.comparison.options
    stroke = element("path", d="M1 6H31", class_="target")
    sample = element("svg", stroke, viewBox="0 0 32 12", class_="swatch", aria_hidden="true")
    labels = [target_label(options, t, facts.score) for t in options.targets]
    lines = [element("li", sample, f" {label}") for label in labels]
    return element("ul", *lines, class_="legend")


def _explanation(facts: Facts) -> str:
    parts = ["Mean over seeds."]
    if any(row.band for row in facts.rows):
        parts.append("The band spans the lowest and the highest seed.")
    if facts.comparison.options.ema is not None:
        parts.append("Thin lines: the evaluations that the moving average is taken over.")
    if any(row.personalised for row in facts.rows):
        parts.append("The curves are of the global model, also where clients have their own.")
    return " ".join(parts)


def _values(facts: Facts) -> Html:
    every = sorted({number for row in facts.rows for number, _ in row.smoothed})
    step = -(-len(every) // SHOWN_ROUNDS)
    shown = sorted({*every[step - 1 :: step], every[-1]})
    rows = [
        [
            joined([svg.swatch(facts.styles[row.name]), " ", row.name]),
            *(_value(dict(row.smoothed).get(n), row.score) for n in shown),
        ]
        for row in facts.rows
    ]
    heading = f"{facts.comparison.accuracy_heading}{facts.score.unit} at round"
    return table([heading, *map(str, shown)], rows)


def _value(value: float | None, score: Score) -> str | None:
    return None if value is None else score.text(value, 1)
