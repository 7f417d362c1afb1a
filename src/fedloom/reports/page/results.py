"""The table of results: a row per method."""

from __future__ import annotations

from fedloom.metrics.curve import rounds_to
from fedloom.reports.comparison import ComparisonRow
from fedloom.reports.page import svg
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, joined, note, section, table
from fedloom.reports.page.numbers import percent, size
from fedloom.reports.table_text import LEGEND

CLIENT_COLUMNS = ("clients' recall %", "worst tenth %", "label-weighted %")


def results(facts: Facts) -> Html:
    """The table and how its columns are computed."""
    personal = any(row.client_scores for row in facts.rows)
    options = facts.comparison.options
    columns = [
        "method",
        f"{facts.comparison.accuracy_heading} %",
        "std",
        *(f"at round {r}" for r in options.at),
        *(f"rounds to {100 * t:.1f} %" for t in options.targets),
        *(CLIENT_COLUMNS if personal else ()),
        "sent",
        "seconds",
        "seeds",
        "rounds",
    ]
    best = max(row.mean for row in facts.rows)
    rows = [_cells(facts, row, personal, row.mean == best) for row in facts.rows]
    return section("Results", "results", table(columns, rows), note(LEGEND))


def _cells(facts: Facts, row: ComparisonRow, personal: bool, best: bool) -> list[object]:
    accuracy = percent(row.mean, 2)
    scores = [
        percent(row.over_clients("mean_class_recall")),
        percent(row.over_clients("mean_class_recall", "worst_tenth")),
        percent(row.over_clients("label_weighted_accuracy")),
    ]
    return [
        named(facts, row.name),
        element("strong", accuracy) if best else accuracy,
        percent(row.std, 2) if len(row.accuracies) > 1 else None,
        *(percent(sum(each) / len(each), 2) for each in row.at),
        *(rounds_to(each, row.rounds) for each in row.reached),
        *(scores if personal else ()),
        size(row.bytes),
        f"{row.seconds:.1f}",
        len(row.accuracies),
        row.rounds,
    ]


def named(facts: Facts, name: str) -> Html:
    """The name of a row with its colour."""
    return joined([svg.swatch(facts.styles[name]), " ", name])
