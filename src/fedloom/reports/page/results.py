"""The table of results: a row per method."""

from __future__ import annotations

from fedloom.metrics.curve import rounds_to
from fedloom.metrics.score import ACCURACY, Score
from fedloom.reports.comparison_row import ComparisonRow
from fedloom.reports.page import svg
from fedloom.reports.page.facts import Facts
from fedloom.reports.page.html import Html, element, joined, note, section, table
from fedloom.reports.page.numbers import size
from fedloom.reports.table_text import LEGEND, OTHER_LEGEND


def results(facts: Facts) -> Html:
    """The table and how its columns are computed."""
    score, options = facts.score, facts.comparison.options
    personal = any(row.has_client_scores for row in facts.rows)
    columns = [
        "method",
        f"{facts.comparison.accuracy_heading}{score.unit}",
        "std",
        *(f"at round {r}" for r in options.at),
        *(f"rounds to {score.text(t, 1)}{score.unit}" for t in options.targets),
        *(_client_columns(score) if personal else ()),
        "sent",
        "seconds",
        "seeds",
        "rounds",
    ]
    best = max(row.mean for row in facts.rows)
    rows = [_cells(facts, row, personal, row.mean == best) for row in facts.rows]
    legend = LEGEND if score is ACCURACY else OTHER_LEGEND
    return section("Results", "results", table(columns, rows), note(legend))


def _client_columns(score: Score) -> list[str]:
    of_classes = score is ACCURACY
    columns = [f"clients' {'recall' if of_classes else score.name}{score.unit}"]
    weighted = [f"label-weighted{score.unit}"] if of_classes else []
    return [*columns, f"worst tenth{score.unit}", *weighted]


def _cells(facts: Facts, row: ComparisonRow, personal: bool, best: bool) -> list[object]:
    score = facts.score
    accuracy = score.text(row.mean)
    weighted = [row.over_clients("label_weighted_accuracy")] if score is ACCURACY else []
    found = [row.over_clients(score.clients, of) for of in ("mean", "worst_tenth")]
    scores = [None if value is None else score.text(value, 1) for value in (*found, *weighted)]
    return [
        named(facts, row.name),
        element("strong", accuracy) if best else accuracy,
        score.text(row.std) if len(row.accuracies) > 1 else None,
        *(score.text(sum(each) / len(each)) for each in row.at),
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
